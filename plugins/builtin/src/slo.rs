//! Reads the latency objectives of a request off its headers.

use epp_plugin_api::Headers;

/// Objectives in milliseconds. 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objectives {
    /// For the time to the first token.
    pub ttft: f64,
    /// For the time per output token.
    pub tpot: f64,
}

impl Objectives {
    /// Reads the headers; what is no number above 0 is no objective. A new name counts even if its value does not.
    pub fn of(headers: &Headers) -> Self {
        let read = |new, old| {
            let value = headers.find_either(new, old).and_then(|text| text.trim().parse::<f64>().ok());
            value.filter(|ms| ms.is_finite() && *ms > 0.0).unwrap_or(0.0)
        };
        Self { ttft: read("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"), tpot: read("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms") }
    }

    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.ttft > 0.0 || self.tpot > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_name_counts_and_what_is_no_number_does_not() {
        for (set, expected) in [
            (&[][..], (0.0, 0.0)),
            (&[("x-slo-ttft-ms", "100"), ("x-llm-d-slo-tpot-ms", "30.5")], (100.0, 30.5)),
            (&[("x-slo-ttft-ms", "100"), ("x-llm-d-slo-ttft-ms", "0")], (0.0, 0.0)),
            (&[("x-slo-ttft-ms", "soon"), ("x-slo-tpot-ms", "-1")], (0.0, 0.0)),
            (&[("x-slo-ttft-ms", "inf"), ("x-slo-tpot-ms", "NaN")], (0.0, 0.0)),
        ] {
            let mut headers = Headers::default();
            set.iter().for_each(|(key, value)| headers.set(*key, (*value).to_owned()));
            assert_eq!(Objectives::of(&headers), Objectives { ttft: expected.0, tpot: expected.1 }, "{set:?}");
        }
    }
}
