//! The progress of both sides: two panels redrawn in place on a terminal, or one line per second otherwise.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::Duration,
};

use super::{comparison::DemoComparison, flow::DemoFlow, gateway::GatewayLoad};
use fairgate_core::sync::Arc;

/// Widths in columns: of the names, and of each panel.
const NAME: usize = 11;
const PANEL: usize = 33;
/// The most columns of the bar of seats.
const BAR: u32 = 20;
/// Erases the rest of a line. Erasing the whole screen would flicker.
const ERASE_TO_END: &str = "\x1b[K";
/// Lines that are too long for the window are cut: wrapped lines would be counted wrongly.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// The columns of each line.
const LINE_HEAD: &str = "\
seats in use, requests waiting; p50/p99 in ms of the slowest mouse and of the elephant";

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressDisplay {
    /// Redrawn in place, for terminals.
    Redrawn,
    /// One line per second, for files and pipes.
    Lines,
}

/// One side at one moment.
#[derive(Clone, Debug)]
pub(super) struct SideProgress {
    load: GatewayLoad,
    flows: Vec<FlowProgress>,
}

/// One flow, so far.
#[derive(Clone, Debug)]
struct FlowProgress {
    name: String,
    open: u64,
    ok: u64,
    p50: Option<Duration>,
    p99: Option<Duration>,
}

/// Shows the progress.
#[derive(Debug)]
pub(super) struct LiveView {
    comparison: DemoComparison,
    display: ProgressDisplay,
    length: Duration,
    /// The number of lines drawn last, which the next drawing overwrites.
    drawn: usize,
}

impl SideProgress {
    /// `load`, and the results of `flows` so far.
    pub(super) fn of(load: GatewayLoad, flows: &[Arc<DemoFlow>]) -> Self {
        let row = |flow: &Arc<DemoFlow>| {
            let mut tally = flow.tally();
            FlowProgress {
                name: flow.name().to_owned(),
                open: tally.open,
                ok: tally.ok,
                p50: tally.latency(50),
                p99: tally.latency(99),
            }
        };
        let flows = flows.iter().map(row).collect();
        Self { load, flows }
    }

    fn waiting(&self) -> String {
        let waiting: u32 = self.load.queues.iter().sum();
        match self.load.queues.len() {
            0 => "nobody".to_owned(),
            1 => format!("{waiting} in 1 queue"),
            queues => format!("{waiting} in {queues} queues"),
        }
    }

    fn seats(&self) -> String {
        let GatewayLoad { seats, in_use, .. } = self.load;
        let width = seats.min(BAR);
        // Rounded up: a single seat in use is visible, whatever the scale.
        let full = (in_use * width).div_ceil(seats.max(1));
        let mark = |at| if at < full { '#' } else { '.' };
        let bar: String = (0..width).map(mark).collect();
        format!("[{bar}] {in_use} of {seats}")
    }

    /// The longest queues first, as many as fit into the panel.
    fn lengths(&self) -> String {
        let mut lengths = self.load.queues.clone();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let mut shown = String::new();
        for length in lengths {
            let more = format!("{length} ");
            if shown.len() + more.len() > PANEL {
                break;
            }
            shown.push_str(&more);
        }
        shown.trim_end().to_owned()
    }

    /// The highest of the mice's latencies at this percentile.
    fn slowest_mouse(&self, of: impl Fn(&FlowProgress) -> Option<Duration>) -> Option<Duration> {
        // The first flow is the elephant.
        self.flows.iter().skip(1).filter_map(of).max()
    }
}

impl LiveView {
    pub(super) fn new(
        comparison: DemoComparison,
        display: ProgressDisplay,
        length: Duration,
    ) -> Self {
        Self {
            comparison,
            display,
            length,
            drawn: 0,
        }
    }

    /// How often to update.
    pub(super) fn period(&self) -> Duration {
        match self.display {
            ProgressDisplay::Redrawn => Duration::from_millis(500),
            ProgressDisplay::Lines => Duration::from_secs(1),
        }
    }

    /// Shows both sides after `elapsed`, the one with fairness first.
    pub(super) fn show(
        &mut self,
        elapsed: Duration,
        sides: &[SideProgress; 2],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self.display {
            ProgressDisplay::Redrawn => {
                let lines = panels(self.comparison, elapsed, self.length, sides);
                self.redraw(&lines, out)?;
            }
            ProgressDisplay::Lines => {
                if self.drawn == 0 {
                    writeln!(out, "{LINE_HEAD}")?;
                }
                writeln!(out, "{}", line(elapsed, self.length, sides))?;
                self.drawn += 1;
            }
        }
        out.flush()
    }

    fn redraw(&mut self, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::from(WRAP_OFF);
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A\r", self.drawn);
        }
        for line in lines {
            let _ = writeln!(text, "{line}{ERASE_TO_END}");
        }
        text.push_str(WRAP_ON);
        self.drawn = lines.len();
        out.write_all(text.as_bytes())
    }
}

fn panels(
    comparison: DemoComparison,
    elapsed: Duration,
    length: Duration,
    sides: &[SideProgress; 2],
) -> Vec<String> {
    let beside = |name: &str, of: &dyn Fn(&SideProgress) -> String| {
        let [with, without] = sides.each_ref().map(of);
        let line = format!("{name:<NAME$}{with:<PANEL$}  {without:<PANEL$}");
        line.trim_end().to_owned()
    };
    let heads = format!("{:>6}{:>8}{:>9}{:>9}", "OPEN", "SERVED", "P50 ms", "P99 ms");
    let [with, without] = comparison.headings();
    let mut lines = vec![
        format!(
            "{:<55}{:>10.0} of {} s",
            comparison.title(),
            elapsed.as_secs_f64(),
            length.as_secs(),
        ),
        String::new(),
        format!("{:<NAME$}{with:<PANEL$}  {without}", ""),
        beside("seats", &SideProgress::seats),
        beside("waiting", &SideProgress::waiting),
        beside("queues", &SideProgress::lengths),
        String::new(),
        beside("", &|_| heads.clone()),
    ];
    for index in 0..sides[0].flows.len() {
        let cells = |picture: &SideProgress| {
            picture.flows.get(index).map_or(String::new(), |row| {
                format!(
                    "{:>6}{:>8}{:>9}{:>9}",
                    row.open,
                    row.ok,
                    ms(row.p50),
                    ms(row.p99)
                )
            })
        };
        lines.push(beside(&sides[0].flows[index].name, &cells));
    }
    lines
}

fn line(elapsed: Duration, length: Duration, sides: &[SideProgress; 2]) -> String {
    let side = |picture: &SideProgress| {
        let elephant = picture.flows.first();
        format!(
            "{}/{} seats, {}, mice {}/{}, elephant {}/{}",
            picture.load.in_use,
            picture.load.seats,
            picture.waiting(),
            ms(picture.slowest_mouse(|row| row.p50)),
            ms(picture.slowest_mouse(|row| row.p99)),
            ms(elephant.and_then(|row| row.p50)),
            ms(elephant.and_then(|row| row.p99)),
        )
    };
    let [with, without] = sides.each_ref().map(side);
    format!(
        "{:>4.0} of {} s | with: {with} | without: {without}",
        elapsed.as_secs_f64(),
        length.as_secs()
    )
}

/// Milliseconds without a fraction, or a dash.
fn ms(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| time.as_millis().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(queues: &[u32], p99: u64) -> SideProgress {
        let row = |name: &str, p99| FlowProgress {
            name: name.to_owned(),
            open: 1,
            ok: 20,
            p50: None,
            p99: Some(Duration::from_millis(p99)),
        };
        SideProgress {
            load: GatewayLoad {
                seats: 10,
                in_use: 7,
                queues: queues.to_vec(),
            },
            flows: vec![
                row("elephant", 1000),
                row("mouse-1", p99),
                row("mouse-2", 1),
            ],
        }
    }

    fn shown(display: ProgressDisplay, times: u64) -> String {
        let sides = [picture(&[3, 30, 4], 60), picture(&[40], 900)];
        let length = Duration::from_secs(20);
        let mut live = LiveView::new(DemoComparison::Fairness, display, length);
        let mut out = Vec::new();
        for second in 1..=times {
            live.show(Duration::from_secs(second), &sides, &mut out)
                .unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_a_terminal_each_update_is_one_line() {
        let text = shown(ProgressDisplay::Lines, 2);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], LINE_HEAD);
        assert_eq!(
            lines[2],
            "   2 of 20 s | with: 7/10 seats, 37 in 3 queues, mice -/60, elephant -/1000 \
             | without: 7/10 seats, 40 in 1 queue, mice -/900, elephant -/1000"
        );
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn on_a_terminal_each_drawing_replaces_the_one_before() {
        let text = shown(ProgressDisplay::Redrawn, 2);
        let lines = shown(ProgressDisplay::Redrawn, 1).lines().count() - 1;
        assert_eq!(text.matches(&format!("\x1b[{lines}A")).count(), 1);
        assert_eq!(text.matches(WRAP_OFF).count(), 2);
        assert_eq!(text.matches(WRAP_ON).count(), 2);
    }

    #[test]
    fn panels_stand_side_by_side_within_eighty_columns() {
        let text = shown(ProgressDisplay::Redrawn, 1);
        let plain = text.replace(ERASE_TO_END, "").replace(WRAP_OFF, "");
        assert!(plain.contains("[#######...] 7 of 10"), "{plain}");
        assert!(plain.contains("queues     30 4 3"), "{plain}");
        for line in plain.replace(WRAP_ON, "").lines() {
            assert!(line.len() <= 79, "{line}");
        }
    }

    #[test]
    fn queues_of_a_fleet_that_do_not_fit_are_left_out() {
        let picture = picture(&[34; 18], 60);
        assert_eq!(picture.lengths(), ["34"; 11].join(" "));
        let sides = [picture.clone(), picture];
        for gateways in [2, 5] {
            let comparison = DemoComparison::Fleet { gateways };
            let second = Duration::from_secs(1);
            for line in panels(comparison, second, 3600 * second, &sides) {
                assert!(line.len() <= 79, "{line}");
            }
        }
    }
}
