//! Reads `name{label=value,other="value"}`: one series of a page of metrics.

use epp_plugin_api::Selector;

/// Reads a spec; the empty one is `None` and means that the metric is off.
///
/// # Errors
/// Says what was expected if braces do not match, a label lacks a name or a value, or a name is none.
pub fn parse(spec: &str) -> Result<Option<Selector>, String> {
    let spec = spec.trim();
    if spec.is_empty() {
        return Ok(None);
    }
    let (name, labels) = match spec.split_once('{') {
        None => (spec, ""),
        Some((name, block)) => {
            let labels = block.strip_suffix('}').ok_or_else(|| format!("expected a }} at the end of {spec:?}"))?;
            (name.trim(), labels.trim())
        }
    };
    if !is_name(name, true) {
        return Err(format!("expected the name of a metric in {spec:?}, found {name:?}"));
    }
    let labels = match labels {
        "" => Vec::new(),
        labels => labels.split(',').map(|term| label(term, spec)).collect::<Result<_, _>>()?,
    };
    Ok(Some(Selector { family: name.to_owned(), labels }))
}

fn label(term: &str, spec: &str) -> Result<(String, String), String> {
    let (name, value) =
        term.split_once('=').ok_or_else(|| format!("expected label=value in {spec:?}, found {term:?}"))?;
    let (name, value) = (name.trim(), value.trim());
    if !is_name(name, false) {
        return Err(format!("expected the name of a label in {spec:?}, found {name:?}"));
    }
    let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
    let bare_is_fine = !value.is_empty() && !value.contains(char::is_whitespace);
    match quoted.unwrap_or(value) {
        text if text.contains(['"', '{', '}']) || (quoted.is_none() && !bare_is_fine) => {
            Err(format!("expected a value for label {name} in {spec:?}, found {value:?}"))
        }
        text => Ok((name.to_owned(), text.to_owned())),
    }
}

fn is_name(name: &str, colons: bool) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, name: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        assert_eq!(parse(spec), Ok(Some(Selector { family: name.into(), labels })), "{spec}");
    }

    #[test]
    fn reads_a_name_with_or_without_labels() {
        for spec in ["my_metric", "my_metric ", "  my_metric  ", "my_metric{}", "my_metric{ }"] {
            check(spec, "my_metric", &[]);
        }
        check("vllm:x", "vllm:x", &[]);
        for spec in ["my_metric{label1=value1}", "my_metric{label1=\"value1\"}"] {
            check(spec, "my_metric", &[("label1", "value1")]);
        }
        for spec in
            ["my_metric{label1=value1,label2=value2}", "  my_metric  {  label1  =  value1  ,  label2  =  value2  }  "]
        {
            check(spec, "my_metric", &[("label1", "value1"), ("label2", "value2")]);
        }
        check("f{x=\"a b\"}", "f", &[("x", "a b")]);
        check("f{x=\"\"}", "f", &[("x", "")]);
        check("f{x=a=b}", "f", &[("x", "a=b")]);
    }

    #[test]
    fn the_empty_spec_is_off() {
        assert_eq!((parse(""), parse("  ")), (Ok(None), Ok(None)));
    }

    #[test]
    fn refuses_what_names_no_series() {
        for spec in [
            "my_metric{label1=value1",
            "my_metriclabel1=value1}",
            "my_metric{label1}",
            "my_metric{=value1}",
            "my_metric{label1=}",
            "my_metric{  =  }",
            "my_metric{label=val}extra",
            "{label=val}",
            "f{x=1}{y=2}",
            "f{x=1,}",
            "f{x=a b}",
            "f{x=\"a,b\"}",
            "f{x=\"}",
            "f{x=\"a\"b}",
            "f{1x=a}",
            "f{x!=1}",
            "f{a:b=1}",
            "1f",
            "f-g",
            "f g",
            "é",
        ] {
            assert!(parse(spec).is_err(), "{spec}");
        }
    }
}
