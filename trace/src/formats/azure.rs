//! Azure's inference traces of 2023 and 2024: a moment and two lengths, nothing of what prompts share.

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::csv::Columns;
use crate::field::tokens;
use crate::moment::moment;
use crate::prompt::{Prompt, Rows};
use crate::record::Record;

#[derive(Default)]
pub struct Azure {
    columns: Option<Columns<3>>,
}

impl Parser for Azure {
    fn take(&mut self, text: &str, out: &mut Out) -> Result<(), Complaint> {
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::find(text, ["TIMESTAMP", "ContextTokens", "GeneratedTokens"], 3)?);
            return Ok(());
        };
        let [at, input, output] = columns.row(text);
        let arrival = moment(at.0, at.1)?;
        let (input, output) = (tokens(input.0, input.1)?, tokens(output.0, output.1)?);
        out.push(Record::new(arrival, Prompt::Rows(Rows::alone(out.next_number(), input)), Some(output)));
        Ok(())
    }
}
