//! Small expressions over the usage that a response reports: a part of CEL.
//!
//! Numbers, `true`, `false`, `usage` and what is in it, `+ - * /`, comparisons, `&& || !`, `c ? a : b`, parentheses,
//! `has(usage.x)`, `int(x)` and `double(x)`. All numbers are floating point.

use epp_plugin_api::Usage;

/// Deeper nested is no expression.
const MOST_DEPTH: usize = 64;

/// What an expression comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Number(f64),
    Truth(bool),
}

/// An expression, ready to be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Constant(Outcome),
    /// What stands in the usage under this path.
    Usage(Vec<String>),
    Has(Vec<String>),
    Not(Box<Self>),
    Negative(Box<Self>),
    Whole(Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
    Choice(Box<Self>, Box<Self>, Box<Self>),
}

/// What joins two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Over,
}

/// Operators by how tightly they bind, loosest first; longer spellings before shorter ones.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::Over)],
];

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// Says what was expected and what stands there.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { rest: text, depth: 0 };
        let expression = reader.choice()?;
        if reader.rest.trim_start().is_empty() { Ok(expression) } else { Err(reader.expected("an operator")) }
    }

    /// Evaluates it; `None` if it needs what is not reported, or mixes numbers and truths.
    pub fn evaluate(&self, usage: &Usage) -> Option<Outcome> {
        use Outcome::{Number, Truth};
        Some(match self {
            Self::Constant(value) => *value,
            Self::Usage(path) => Number(find(usage, path)?),
            Self::Has(path) => Truth(find(usage, path).is_some()),
            Self::Not(inner) => match inner.evaluate(usage)? {
                Truth(value) => Truth(!value),
                Number(_) => return None,
            },
            Self::Negative(inner) => Number(-inner.number(usage)?),
            Self::Whole(inner) => Number(inner.number(usage)?.trunc()),
            Self::Choice(condition, yes, no) => match condition.evaluate(usage)? {
                Truth(true) => yes.evaluate(usage)?,
                Truth(false) => no.evaluate(usage)?,
                Number(_) => return None,
            },
            Self::Binary(operator @ (Operator::Or | Operator::And), a, b) => {
                // One side can decide although the other cannot be told.
                let decides = *operator == Operator::Or;
                match (a.truth(usage), b.truth(usage)) {
                    (Some(value), _) | (_, Some(value)) if value == decides => Truth(decides),
                    (Some(_), Some(_)) => Truth(!decides),
                    _ => return None,
                }
            }
            Self::Binary(operator, a, b) => join(*operator, a.evaluate(usage)?, b.evaluate(usage)?)?,
        })
    }

    fn number(&self, usage: &Usage) -> Option<f64> {
        match self.evaluate(usage)? {
            Outcome::Number(value) => Some(value),
            Outcome::Truth(_) => None,
        }
    }

    fn truth(&self, usage: &Usage) -> Option<bool> {
        match self.evaluate(usage)? {
            Outcome::Truth(value) => Some(value),
            Outcome::Number(_) => None,
        }
    }
}

fn join(operator: Operator, a: Outcome, b: Outcome) -> Option<Outcome> {
    use Outcome::{Number, Truth};
    Some(match (operator, a, b) {
        (Operator::Equal, a, b) => Truth(a == b),
        (Operator::Unequal, a, b) => Truth(a != b),
        (Operator::Less, Number(a), Number(b)) => Truth(a < b),
        (Operator::LessOrEqual, Number(a), Number(b)) => Truth(a <= b),
        (Operator::Greater, Number(a), Number(b)) => Truth(a > b),
        (Operator::GreaterOrEqual, Number(a), Number(b)) => Truth(a >= b),
        (Operator::Plus, Number(a), Number(b)) => Number(a + b),
        (Operator::Minus, Number(a), Number(b)) => Number(a - b),
        (Operator::Times, Number(a), Number(b)) => Number(a * b),
        (Operator::Over, Number(a), Number(b)) => Number(a / b),
        _ => return None,
    })
}

fn find(usage: &Usage, path: &[String]) -> Option<f64> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let value = match path[..] {
        ["prompt_tokens" | "input_tokens"] => usage.prompt,
        ["completion_tokens" | "output_tokens"] => usage.completion,
        ["total_tokens"] => usage.total,
        ["prompt_tokens_details" | "input_tokens_details", "cached_tokens"] => usage.cached,
        _ => None,
    };
    value.map(|tokens| tokens as f64)
}

struct Reader<'t> {
    rest: &'t str,
    depth: usize,
}

impl Reader<'_> {
    fn expected(&self, what: &str) -> String {
        let rest = self.rest.trim_start();
        if rest.is_empty() {
            format!("expected {what}, found the end")
        } else {
            format!("expected {what}, found {rest:?}")
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        let after = self.rest.trim_start().strip_prefix(token);
        if let Some(after) = after {
            self.rest = after;
        }
        after.is_some()
    }

    fn need(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(token)) }
    }

    fn choice(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("expected at most {MOST_DEPTH} levels, found more"));
        }
        let condition = self.level(0)?;
        let expression = if self.eat("?") {
            let yes = self.choice()?;
            self.need(":")?;
            Expression::Choice(Box::new(condition), Box::new(yes), Box::new(self.choice()?))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn level(&mut self, level: usize) -> Result<Expression, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(token, _)| self.eat(token)) {
            let right = self.level(level + 1)?;
            left = Expression::Binary(*operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, String> {
        type Wrap = fn(Box<Expression>) -> Expression;
        const SIGNS: [(&str, Wrap); 2] = [("!", Expression::Not), ("-", Expression::Negative)];
        let mut wraps = Vec::new();
        while let Some((_, wrap)) = SIGNS.iter().find(|(token, _)| self.eat(token)) {
            wraps.push(*wrap);
        }
        if wraps.len() > MOST_DEPTH {
            return Err(format!("expected at most {MOST_DEPTH} signs, found more"));
        }
        let inner = self.primary()?;
        Ok(wraps.into_iter().rev().fold(inner, |inner, wrap| wrap(Box::new(inner))))
    }

    fn primary(&mut self) -> Result<Expression, String> {
        if self.eat("(") {
            let inner = self.choice()?;
            self.need(")")?;
            return Ok(inner);
        }
        let start = self.rest.trim_start();
        if start.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number();
        }
        let before = self.rest;
        let name = self.name().ok_or_else(|| self.expected("a number or usage"))?;
        match name {
            "true" => Ok(Expression::Constant(Outcome::Truth(true))),
            "false" => Ok(Expression::Constant(Outcome::Truth(false))),
            "usage" => Ok(Expression::Usage(self.path()?)),
            "has" | "int" | "double" if self.eat("(") => {
                let inner = self.choice()?;
                self.need(")")?;
                match (name, inner) {
                    ("has", Expression::Usage(path)) => Ok(Expression::Has(path)),
                    ("has", _) => Err("expected has(usage.…), found something else in its place".into()),
                    ("int", inner) => Ok(Expression::Whole(Box::new(inner))),
                    (_, inner) => Ok(inner),
                }
            }
            _ => {
                self.rest = before;
                Err(self.expected("a number or usage"))
            }
        }
    }

    fn number(&mut self) -> Result<Expression, String> {
        let start = self.rest.trim_start();
        let end = start.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(start.len());
        // The sign of an exponent belongs to the number, too.
        let signed = start[..end].ends_with(['e', 'E']) && start[end..].starts_with(['+', '-']);
        let more = |rest: &str| rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let end = if signed { end + 1 + more(&start[end + 1..]) } else { end };
        let text = start[..end].trim_end_matches('u');
        let value: f64 = text.parse().map_err(|_| self.expected("a number"))?;
        self.rest = &start[end..];
        Ok(Expression::Constant(Outcome::Number(value)))
    }

    fn path(&mut self) -> Result<Vec<String>, String> {
        let mut path = Vec::new();
        while self.eat(".") {
            path.push(self.name().ok_or_else(|| self.expected("the name of a field"))?.to_owned());
        }
        if path.is_empty() { Err(self.expected("a field of usage")) } else { Ok(path) }
    }
}

impl<'t> Reader<'t> {
    fn name(&mut self) -> Option<&'t str> {
        let start = self.rest.trim_start();
        let end = start.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(start.len());
        let name = Some(&start[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        if name.is_some() {
            self.rest = &start[end..];
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage { prompt: Some(15), completion: Some(10), cached: Some(4), total: None };

    fn value(text: &str) -> Option<Outcome> {
        Expression::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).evaluate(&USAGE)
    }

    #[test]
    fn calculates_as_usual() {
        for (text, expected) in [
            ("usage.prompt_tokens", 15.0),
            ("usage.prompt_tokens + usage.completion_tokens", 25.0),
            ("usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens * 2", 7.0),
            ("(usage.prompt_tokens-5)/2", 5.0),
            ("1.5e1 + 2 * -3", 9.0),
            ("10 - 2 - 3", 5.0),
            ("1e-1 * 10", 1.0),
            ("int(7 / 2) + double(1)", 4.0),
            ("usage.prompt_tokens > 10 ? 1 : 2", 1.0),
            ("has(usage.total_tokens) ? usage.total_tokens : usage.prompt_tokens", 15.0),
            ("false ? 1 : true ? 2 : 3", 2.0),
        ] {
            assert_eq!(value(text), Some(Outcome::Number(expected)), "{text}");
        }
    }

    #[test]
    fn compares_and_joins_truths() {
        for (text, expected) in [
            ("usage.prompt_tokens >= 15", true),
            ("usage.prompt_tokens != 15.0", false),
            ("1 < 2 && 2 <= 2 && !(3 < 2)", true),
            ("usage.nope > 1 || true", true),
            ("usage.nope > 1 && false", false),
            ("1 == 1 || false", true),
        ] {
            assert_eq!(value(text), Some(Outcome::Truth(expected)), "{text}");
        }
    }

    #[test]
    fn what_is_not_reported_has_no_value() {
        for text in ["usage.total_tokens", "usage.nope.deep + 1", "1 + true", "!1", "1 ? 2 : 3", "-true", "1 && 2"] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn says_what_is_no_expression() {
        let deep = "(".repeat(1000);
        for text in ["", "usage", "usage.", "1 +", "1 2", "cost + 1", "(1", "1 ? 2", "1x", "has(1)", "'text'", &deep] {
            let why = Expression::parse(text).unwrap_err();
            assert!(why.starts_with("expected "), "{text}: {why}");
        }
    }
}
