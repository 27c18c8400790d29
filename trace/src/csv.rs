//! Tables with commas: columns go by the names in the first line.

use crate::bad::Complaint;

/// Where the wanted columns are.
#[derive(Debug)]
pub struct Columns<const N: usize> {
    names: [&'static str; N],
    at: [Option<usize>; N],
}

impl<const N: usize> Columns<N> {
    /// Finds these columns, of which the first `n_needed` must be there. Case does not count.
    pub fn find(header: &str, names: [&'static str; N], n_needed: usize) -> Result<Self, Complaint> {
        let at = names.map(|name| cells(header).position(|cell| cell.eq_ignore_ascii_case(name)));
        match names.iter().zip(&at).take(n_needed).find(|(_, at)| at.is_none()) {
            Some((name, _)) => {
                Err(Complaint::new(*name, "expected a column of this name in the first line, found none"))
            }
            None => Ok(Self { names, at }),
        }
    }

    /// The cells of these columns with the names of their columns; `None` where a row has none.
    pub fn row<'a>(&self, line: &'a str) -> [(&'static str, Option<&'a str>); N] {
        let mut row = self.names.map(|name| (name, None));
        for (i, cell) in cells(line).enumerate() {
            for (at, (_, value)) in self.at.iter().zip(&mut row) {
                if *at == Some(i) {
                    *value = Some(cell);
                }
            }
        }
        row
    }
}

/// None of these tables has a comma inside of a cell.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|cell| cell.trim().trim_matches('"'))
}
