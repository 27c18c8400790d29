//! Markup into which nothing of a user's gets as anything but text.

use std::fmt::{self, Display, Write as _};

/// HTML and SVG. Texts and values of attributes are escaped on their way in; what is not escaped is part of this program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Markup(String);

/// Names and values; a value is escaped.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

impl Markup {
    /// Adds markup of this program.
    pub fn literal(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    pub fn text(&mut self, text: impl Display) {
        escape(&mut self.0, &text);
    }

    /// Adds an element and what `inside` puts into it.
    pub fn nested(&mut self, tag: &'static str, attributes: Attributes, inside: impl FnOnce(&mut Self)) {
        self.0.push('<');
        self.begin(tag, attributes);
        self.0.push('>');
        inside(self);
        let _ = write!(self.0, "</{tag}>");
    }

    /// Adds an element that holds a text.
    pub fn element(&mut self, tag: &'static str, attributes: Attributes, text: impl Display) {
        self.nested(tag, attributes, |inside| inside.text(text));
    }

    /// Adds an element without content: a shape of SVG.
    pub fn shape(&mut self, tag: &'static str, attributes: Attributes) {
        self.0.push('<');
        self.begin(tag, attributes);
        self.0.push_str("/>");
    }

    pub fn append(&mut self, other: Self) {
        self.0.push_str(&other.0);
    }

    pub fn into_string(self) -> String {
        self.0
    }

    fn begin(&mut self, tag: &'static str, attributes: Attributes) {
        self.0.push_str(tag);
        for (name, value) in attributes {
            let _ = write!(self.0, " {name}=\"");
            escape(&mut self.0, value);
            self.0.push('"');
        }
    }
}

fn escape(into: &mut String, text: &dyn Display) {
    let _ = write!(Escape(into), "{text}");
}

/// Writes so that a text stays one, between tags and between quotes.
struct Escape<'a>(&'a mut String);

impl fmt::Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                c if c.is_control() => self.0.push(char::REPLACEMENT_CHARACTER),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_values_of_attributes_are_escaped() {
        let mut markup = Markup::default();
        markup.element("b", &[("title", &"\"><script>'&")], "</b><img src=x onerror=alert(1)>\0");
        assert_eq!(
            markup.into_string(),
            "<b title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\">&lt;/b&gt;&lt;img src=x onerror=alert(1)&gt;\u{fffd}</b>"
        );
    }

    #[test]
    fn what_is_nested_is_closed() {
        let mut markup = Markup::default();
        markup.nested("svg", &[], |svg| svg.shape("path", &[("d", &"M0 0")]));
        assert_eq!(markup.into_string(), "<svg><path d=\"M0 0\"/></svg>");
    }
}
