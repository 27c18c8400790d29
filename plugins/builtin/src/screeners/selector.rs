//! Reads Kubernetes label selectors in their short form: `app=x, tier in (a, b), !old`.

use crate::filters::label_selector::{Rule, Term, label_key, label_value};

/// Reads a selector; an empty one has no terms.
///
/// # Errors
/// Says what was expected and what was found.
pub fn parse(text: &str) -> Result<Vec<Term>, String> {
    terms(text).into_iter().filter(|term| !term.is_empty()).map(term).collect()
}

/// Cuts at the commas outside of parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut inside = false;
    let cuts = text.split(|c| {
        inside = (inside || c == '(') && c != ')';
        c == ',' && !inside
    });
    cuts.map(str::trim).collect()
}

fn term(text: &str) -> Result<Term, String> {
    type Of = fn(Vec<String>) -> Rule;
    const OPERATORS: [(&str, Of); 3] = [("!=", Rule::NotIn), ("==", Rule::In), ("=", Rule::In)];
    for (operator, rule) in OPERATORS {
        if let Some((key, value)) = text.split_once(operator).filter(|(key, _)| !key.is_empty()) {
            return checked(key.trim(), rule(vec![value.trim().to_owned()]));
        }
    }
    if let Some((head, list)) = text.split_once('(') {
        let list = list.trim_end().strip_suffix(')');
        let list = list.ok_or_else(|| format!("expected a closing parenthesis, found none in {text:?}"))?;
        let values = list.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => checked(key, Rule::In(values)),
            [key, "notin"] => checked(key, Rule::NotIn(values)),
            _ => Err(format!("expected a label and in or notin before the values, found {text:?}")),
        };
    }
    match text.strip_prefix('!') {
        Some(key) => checked(key.trim(), Rule::DoesNotExist),
        None => checked(text, Rule::Exists),
    }
}

fn checked(key: &str, rule: Rule) -> Result<Term, String> {
    let values = match &rule {
        Rule::In(values) | Rule::NotIn(values) => &values[..],
        Rule::Exists | Rule::DoesNotExist => &[],
    };
    let mistake = label_key(key).or_else(|| values.iter().find_map(|value| label_value(value)));
    mistake.map_or_else(|| Ok(Term { key: key.to_owned(), rule }), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<(String, Rule)> {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).into_iter().map(|term| (term.key, term.rule)).collect()
    }

    #[test]
    fn reads_every_kind_of_term() {
        let values = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
        for (text, key, rule) in [
            ("app=x", "app", Rule::In(values(&["x"]))),
            (" app == x ", "app", Rule::In(values(&["x"]))),
            ("app=", "app", Rule::In(values(&[""]))),
            ("app!=x", "app", Rule::NotIn(values(&["x"]))),
            ("tier in (a, b)", "tier", Rule::In(values(&["a", "b"]))),
            ("tier notin (a)", "tier", Rule::NotIn(values(&["a"]))),
            ("x.io/old", "x.io/old", Rule::Exists),
            ("!old", "old", Rule::DoesNotExist),
        ] {
            assert_eq!(rules(text), [(key.to_owned(), rule)], "{text}");
        }
        assert_eq!(rules("app=x, tier in (a,b) ,!old").len(), 3);
        assert!(rules("").is_empty());
    }

    #[test]
    fn says_what_is_no_selector() {
        for text in ["a b", "=x", "a in (b", "a near (b)", "a=b c", "-a=b", "!", "a in b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
