//! The page as a whole: one file that asks for nothing else, readable without script, on a phone, in the dark and on paper.

use super::arms::{Arm, chooser, rules};
use super::markup::Markup;

const STYLE: &str = include_str!("style.css");
/// Whatever gets into the page, it loads nothing and runs nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A page that is being put together.
pub(super) struct Document {
    title: String,
    arms: usize,
    header: Markup,
    chooser: Markup,
    body: Markup,
}

impl Document {
    /// A page with this title and a sentence below it.
    pub fn new(title: &str, summary: &str) -> Self {
        let mut header = Markup::default();
        header.element("h1", &[], title);
        header.element("p", &[("class", &"summary")], summary);
        Self { title: title.into(), arms: 0, header, chooser: Markup::default(), body: Markup::default() }
    }

    /// Adds what belongs to the head of the page.
    pub fn head(&mut self, inside: impl FnOnce(&mut Markup)) {
        inside(&mut self.header);
    }

    /// Lets the reader bring out single arms.
    pub fn arms(&mut self, arms: &[Arm]) {
        self.arms = arms.len();
        if arms.len() > 1 {
            chooser(arms, &mut self.chooser);
        }
    }

    /// Adds a part with a heading; `class` says how its figures are laid out: `one`, `two` or `many` in a row.
    pub fn section(&mut self, title: &str, note: &str, class: &'static str, inside: impl FnOnce(&mut Markup)) {
        self.body.nested("section", &[], |section| {
            section.element("h2", &[], title);
            if !note.is_empty() {
                section.element("p", &[("class", &"note")], note);
            }
            section.nested("div", &[("class", &format_args!("figures {class}"))], inside);
        });
    }

    pub fn into_html(self) -> String {
        let mut page = Markup::default();
        page.literal("<!doctype html>\n");
        page.nested("html", &[("lang", &"en")], |html| {
            html.nested("head", &[], |head| {
                head.literal("<meta charset=\"utf-8\">");
                head.shape("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
                head.literal("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
                head.literal("<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">");
                head.element("title", &[], &self.title);
                head.nested("style", &[], |style| {
                    style.literal(STYLE);
                    // Made of numbers and of text of this file; nothing in it would be escaped.
                    style.text(rules(self.arms));
                });
            });
            html.nested("body", &[], |body| {
                body.nested("header", &[], |header| header.append(self.header));
                body.append(self.chooser);
                body.nested("main", &[], |main| main.append(self.body));
            });
        });
        page.literal("\n");
        page.into_string()
    }
}
