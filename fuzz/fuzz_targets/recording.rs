//! Fuzzes recordings of decisions: they are replayed, under their own config or under one that runs plugins anew which were
//! not there, or refused with a word.
#![no_main]

use std::io::Cursor;

use epp::recording::read::Reader;
use epp::replay::{Wish, replay};
use libfuzzer_sys::fuzz_target;

/// What is in force is always the same, so that the bytes go into the cycles, and into what engines say.
const HEAD: &str = concat!(
    r#"{"config":1,"text":"plugins: [{type: queue-scorer}, {type: active-request-scorer}, {type: decode-filter}]\nschedulingProfiles: "#,
    r#"[{name: default, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}, {pluginRef: active-request-scorer}]}]\n","#,
    r#""values":["InFlightLoadDataKey/inflight-load-producer","TokenizedPrompt/token-producer"],"headers":["x-zone"]}"#,
    "\n",
    r#"{"endpoints":["a:1","b:1","c:1"],"names":["default/a","default/b","default/c"],"labels":[{},{"zone":"a"},{"llm-d.ai/role":"prefill"}]}"#,
    "\n",
    r#"{"observed":[{"row":0,"load":"1 2 0.5"},{"row":1,"stale":true,"load":"- - -"},{"row":2,"load":"3 4 0.1"}]}"#,
    "\n",
    r#"{"cycle":1,"id":"x","model":"m","body":9,"headers":["a"],"seed":7,"candidates":3,"stale":[2],"values":["1/5 0=0/0","30"],"primary":0,"runs":[{"profile":0,"kept":[2],"left":[0,1],"scores":["0 0=1","0.5"],"picked":[0]}]}"#,
    "\n",
);

const OTHER: &str = "plugins:\n- {type: load-aware-scorer}\n- {type: active-request-scorer, parameters: {idleThreshold: 1}}\n\
                     - {type: utilization-filter, parameters: {conditions: [{metric: waiting-queue, maxValue: 2}]}}\n\
                     - {type: context-length-aware}\n- {type: header-label-affinity-scorer, parameters: {headerName: x-zone, labelKey: zone}}\n\
                     schedulingProfiles:\n- name: default\n  plugins: [{pluginRef: utilization-filter}, {pluginRef: load-aware-scorer}, \
                     {pluginRef: active-request-scorer}, {pluginRef: context-length-aware}, {pluginRef: header-label-affinity-scorer}]\n";

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let text = [HEAD.as_bytes(), rest].concat();
    let wish = Wish { config: (first % 2 == 1).then_some(OTHER), last: None, n_shown: 3 };
    match replay(Reader::new(Box::new(Cursor::new(text))), 0, &wish, epp::app::registry(), &mut |_| {}) {
        Ok(report) => {
            assert!(report.differ <= report.judged && report.judged + report.unknown <= report.cycles);
            assert!(report.cycles > 0);
        }
        Err(why) => assert!(!format!("{why:#}").is_empty()),
    }
});
