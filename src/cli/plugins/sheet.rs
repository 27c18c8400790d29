//! Pages of plugin types as text for a terminal, and as Markdown.

use std::fmt::Write;

use epp_plugin_api::DataKey;

use super::page::{Data, Page};
use super::parameter::Parameter;
use super::{kinds, standing};

/// How many characters a line of a terminal holds.
const WIDTH: usize = 100;

/// A page for a terminal.
pub fn text(page: &Page) -> String {
    let kind = page.kind;
    let mut out = format!("{}: {}\n\n", kind.name, kind.summary);
    let mut fact = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:11}{value}");
    };
    fact("kind", &kinds(kind));
    fact("stability", &standing(kind));
    for (name, keys) in data_lines(page.data.as_ref()) {
        fact(name, &keys.join("\n           "));
    }
    out.push_str("\nparameters\n");
    match page.same_as {
        Some(new) => out.push_str(&format!("  those of {new}\n")),
        None if page.parameters.is_empty() => out.push_str("  none\n"),
        None => page.parameters.iter().for_each(|parameter| explain(parameter, &mut out)),
    }
    out.push_str("\nexample\n");
    for line in page.example.lines() {
        let _ = writeln!(out, "  {line}");
    }
    out
}

fn explain(parameter: &Parameter, out: &mut String) {
    let _ = writeln!(out, "  {}  ({})", parameter.name, traits(parameter).join(", "));
    for line in wrapped(&parameter.description, WIDTH - 6) {
        let _ = writeln!(out, "      {line}");
    }
}

fn traits(parameter: &Parameter) -> Vec<String> {
    let mut words = vec![parameter.kind.clone()];
    words.extend(parameter.range.clone());
    if parameter.is_required {
        words.push("required".to_owned());
    }
    words.extend(parameter.default.as_ref().map(|value| format!("default {value}")));
    words
}

fn data_lines(data: Option<&Data>) -> Vec<(&'static str, Vec<String>)> {
    let Some(Data { reads, optional_reads, writes }) = data else {
        return vec![("data", vec!["depends on the parameters".to_owned()])];
    };
    let keys = |keys: &[DataKey], suffix: &str| keys.iter().map(|key| format!("{key}{suffix}")).collect::<Vec<_>>();
    let mut read = keys(reads, "");
    read.extend(keys(optional_reads, " (if there)"));
    [("reads", read), ("writes", keys(writes, ""))].into_iter().filter(|(_, keys)| !keys.is_empty()).collect()
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// All pages in one document.
pub fn markdown(pages: &[Page]) -> String {
    let mut out = String::from(
        "# Plugins\n\n\
         Written by `make docs` from the types that the parameters are read into; `epp plugins NAME` prints the same, and\n\
         `epp schema` a JSON Schema for editors. A parameter that is absent or null has its default. Data is named\n\
         `data/producer`.\n\n\
         | type | kind | stability | what it does |\n|---|---|---|---|\n",
    );
    for Page { kind, .. } in pages {
        let _ = writeln!(
            out,
            "| [`{0}`](#{0}) | {1} | {2} | {3} |",
            kind.name,
            kinds(kind),
            standing(kind),
            cell(kind.summary)
        );
    }
    pages.iter().for_each(|page| section(page, &mut out));
    out
}

fn section(page: &Page, out: &mut String) {
    let kind = page.kind;
    let _ = write!(out, "\n## {}\n\n{}\n\n", kind.name, kind.summary);
    let _ = writeln!(out, "- kind: {}\n- stability: {}", kinds(kind), standing(kind));
    for (name, keys) in data_lines(page.data.as_ref()) {
        let _ = writeln!(out, "- {name}: {}", keys.join(", "));
    }
    match page.same_as {
        Some(new) => out.push_str(&format!("\nParameters: those of [`{new}`](#{new}).\n")),
        None if page.parameters.is_empty() => out.push_str("\nNo parameters.\n"),
        None => table(&page.parameters, out),
    }
    let _ = write!(out, "\n```yaml\n{}```\n", page.example);
}

fn table(parameters: &[Parameter], out: &mut String) {
    out.push_str("\n| parameter | type | default | range | meaning |\n|---|---|---|---|---|\n");
    for Parameter { name, kind, is_required, default, range, description } in parameters {
        let default = match default {
            Some(value) => format!("`{value}`"),
            None if *is_required => "required".to_owned(),
            None => String::new(),
        };
        let range = range.as_deref().unwrap_or_default();
        let row = ["`".to_owned() + name + "`", kind.clone(), default, range.to_owned(), description.clone()];
        let _ = writeln!(out, "| {} |", row.map(|value| cell(&value)).join(" | "));
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("aa bb cc dddddd", 5), ["aa bb", "cc", "dddddd"]);
    }

    #[test]
    fn a_bar_does_not_end_a_cell() {
        assert_eq!(cell("a|b"), "a\\|b");
    }
}
