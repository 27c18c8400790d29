//! The page and the picture of the figures.

use std::fmt::Write;

type Row = (u32, usize, f64, f64);

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Where the axes are.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 350.0;
/// Ends of the axes as powers of ten: tokens, microseconds.
const TOKENS: (f64, f64) = (3.0, 6.0);
const TIME: (f64, f64) = (-2.0, 5.0);

fn x(tokens: f64) -> f64 {
    LEFT + (tokens.log10() - TOKENS.0) / (TOKENS.1 - TOKENS.0) * (RIGHT - LEFT)
}

fn y(time: f64) -> f64 {
    BOTTOM - (time.log10() - TIME.0) / (TIME.1 - TIME.0) * (BOTTOM - TOP)
}

/// Draws the cost of a lookup against the length of the prompt, a line for each number of engines and design.
pub(crate) fn svg(rows: &[Row]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>text{{fill:#222}}.axis{{stroke:#888;fill:none}}.grid{{stroke:#ccc}}.ours{{stroke:#0b6bcb;fill:none;stroke-width:2}}\
         .plain{{stroke:#c2410c;fill:none;stroke-width:2}}\
         @media(prefers-color-scheme:dark){{text{{fill:#ddd}}.grid{{stroke:#444}}.ours{{stroke:#5aa9f5}}.plain{{stroke:#f59e5a}}}}</style>\n"
    );
    let mut line = |text: String| writeln!(svg, "{text}").expect("a string takes all");
    for power in TIME.0 as i32..=TIME.1 as i32 {
        let (at, label) =
            (y(10f64.powi(power)), ["10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]);
        line(format!("<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>"));
        let label = label[(power - TIME.0 as i32) as usize];
        line(format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, at + 4.0));
    }
    for (tokens, label) in [(1e3, "1,000"), (1e4, "10,000"), (1e5, "100,000"), (1e6, "1,000,000")] {
        let at = x(tokens);
        line(format!("<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", BOTTOM + 18.0));
    }
    line(format!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>"));
    let middle = (LEFT + RIGHT) / 2.0;
    line(format!("<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">tokens of the prompt</text>", BOTTOM + 38.0));
    for engines in [10, 100, 1000] {
        for (class, name, ours) in [("ours", "index", true), ("plain", "map", false)] {
            let time = |row: &Row| if ours { row.2 } else { row.3 };
            let here: Vec<&Row> = rows.iter().filter(|row| row.0 == engines).collect();
            let points: Vec<String> =
                here.iter().map(|row| format!("{:.1},{:.1}", x(row.1 as f64), y(time(row)))).collect();
            line(format!("<polyline class=\"{class}\" points=\"{}\"/>", points.join(" ")));
            if let Some(last) = here.last() {
                let at = y(time(last)) + 4.0;
                line(format!("<text x=\"{}\" y=\"{at:.1}\">{name}, {engines} engines</text>", RIGHT + 8.0));
            }
        }
    }
    svg + "</svg>\n"
}

/// Writes the page of figures.
pub(crate) fn page(lines: &str, rows: &[Row]) -> String {
    let mut page = format!(
        "# What the prefix index costs\n\n\
         Measured by one program, beside the straightforward design: a hash map from block to a bit set of the engines that\n\
         hold it, one probe a block, behind a lock of the same kind. Blocks have 16 tokens; 100,000 tokens are 6,250 blocks. To\n\
         measure anew and write this page:\n\n\
         ```sh\ncargo bench -p epp-prefix-index --bench figures -- --write\n```\n\n\
         `make bench` prints the same figures and those of criterion. These are from a machine with two shared cores that had\n\
         other work to do; the two columns were measured one after the other, so compare them with each other.\n\n\
         | | prefix index | map of blocks |\n|---|---|---|\n{lines}\n\
         The events are those of 1,000 engines that go through 400 prompts of 1,280 blocks, 128 blocks an event, the first 256\n\
         blocks the same in all; each engine drops its oldest prompt after seven. One thread applies them,\n\
         another looks up and rests for 50 µs. Where the machine has no core to spare, a thread that waits for the lock also\n\
         waits for a core, in both designs. An engine's hashes are its own. The map does not keep them, so that it could not\n\
         apply a removal; that makes its figures better than they would be.\n\n\
         ## Cost of a lookup by size\n\n\
         All engines hold the prompt. Medians.\n\n\
         ![Cost of a lookup against the length of the prompt](prefix-index.svg)\n\n\
         | engines | tokens | prefix index | map of blocks |\n|---|---|---|---|\n"
    );
    for (engines, tokens, ours, plain) in rows {
        writeln!(page, "| {engines} | {tokens} | {ours:.2} µs | {plain:.1} µs |").expect("a string takes all");
    }
    page
}
