//! The surroundings of one attack: a fake upstream, a gateway in front of it, and other clients.
//!
//! What is counted decides: failures, responses that others get while the attack is on ([`Goal`]), what the gateway's budgets
//! hold, long turns of its data cores. Times and resident memory are figures. They are only taken where figures are measured, and
//! only those with a control are evaluated, beside seconds before the attack in each of several plays.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    busy::BusyMachine,
    gateway::{Gateway, Memory, Metrics, Setup},
    goal::Goal,
    mode,
    others::{Mix, Others, ServiceStats},
    report::{Outcome, millis},
    time::{LIVENESS, ms, now},
    upstream::{FakeUpstream, STREAMS},
};

/// How long the other clients run before they are measured, and then until the attack.
const WARM_UP: Duration = ms(300);
const BEFORE: Duration = ms(1000);
/// The same on a busy machine.
const BUSY_BEFORE: Duration = ms(4000);
/// How long the other clients are measured at least, from the beginning of the attack on.
const LEAST: Duration = ms(1000);
/// Long turns that do not count: where a virtual machine is stopped in a turn, that is processor time of the turn, too. Work
/// that does not belong on a data core takes dozens of them.
const LONG_TURNS: f64 = 3.0;
/// How long memory may take to shrink again once the attackers have left.
const RECOVERY: Duration = ms(4000);
/// Resident memory that an attack may leave behind, in bytes: what the allocator keeps.
const LEFT_BEHIND: u64 = 64 << 20;

/// Where an attack is played.
pub(crate) struct Scene {
    pub(crate) upstream: FakeUpstream,
    pub(crate) gateway: Gateway,
    mix: Mix,
    before: Before,
    others: Option<Others>,
    goal: OnceLock<Goal>,
}

/// What keeps the machine busy while the other clients are measured before the attack.
enum Before {
    Nothing,
    /// Threads on all cores.
    BusyCores,
    /// This, until it returns.
    Load(Box<dyn FnOnce()>),
}

/// The measurements, and the result of the attack itself.
pub(crate) struct Played<T> {
    pub(crate) scene: Scene,
    pub(crate) outcome: Outcome,
    /// Metrics before and after.
    pub(crate) metrics: [Metrics; 2],
    /// The result of the attack itself.
    pub(crate) found: T,
}

impl Scene {
    /// A gateway configured by `setup`, in front of an upstream that allows 100 streams on a connection.
    pub(crate) fn new(setup: &Setup, mix: Mix) -> Self {
        Self::with_streams(STREAMS, setup, mix)
    }

    /// The same, with another number of streams.
    pub(crate) fn with_streams(streams: u32, setup: &Setup, mix: Mix) -> Self {
        Self::with_upstream(FakeUpstream::start(streams), setup, mix)
    }

    /// The same, in front of this upstream.
    pub(crate) fn with_upstream(upstream: FakeUpstream, setup: &Setup, mix: Mix) -> Self {
        let gateway = Gateway::start(setup, upstream.address);
        Self {
            upstream,
            gateway,
            mix,
            before: Before::Nothing,
            others: None,
            goal: OnceLock::new(),
        }
    }

    /// What the other clients have to get from now on, while the attack is on. Where figures are measured, it lasts for `lasts`
    /// at least.
    ///
    /// # Panics
    ///
    /// If there is such a goal already, or no attack is played.
    pub(crate) fn goal(&self, lasts: Duration) -> Goal {
        let others = self.others.as_ref().expect("an attack is being played");
        let goal = Goal::new(others.served(), lasts);
        assert!(
            self.goal.set(goal.clone()).is_ok(),
            "an attack has one goal"
        );
        goal
    }

    /// Compares the other clients with those on a machine whose cores are busy, for attacks that need all of them: what
    /// remains is the gateway's part.
    pub(crate) fn on_a_busy_machine(mut self) -> Self {
        self.before = Before::BusyCores;
        self
    }

    /// Compares the other clients with those on a machine that `load` keeps busy, for attacks whose traffic alone does that.
    pub(crate) fn beside(mut self, load: impl FnOnce() + 'static) -> Self {
        self.before = Before::Load(Box::new(load));
        self
    }

    /// Plays the attack while the others work. Attackers leave when `attack` is done.
    pub(crate) fn play<T>(self, attack: impl AsyncFnOnce(&Scene) -> T) -> Played<T> {
        let mut scene = self;
        let before = std::mem::replace(&mut scene.before, Before::Nothing);
        let others = Others::start(scene.gateway.address, scene.mix);
        warm_up(&others);
        let metrics_before = scene.gateway.metrics();
        let before = if mode::measures() {
            before.stats(&others)
        } else {
            others.stats()
        };
        scene.others = Some(others);
        let memory = MemoryWatch::start(scene.gateway.memory());
        let resident = scene.gateway.memory().resident();
        let (cpu, begun) = (scene.gateway.cpu(), now());

        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let found = runtime.block_on(attack(&scene));
        if mode::measures() {
            std::thread::sleep(LEAST.saturating_sub(begun.elapsed()));
        }
        let took = begun.elapsed();
        let cpu = scene.gateway.cpu().saturating_sub(cpu);
        let metrics_after = scene.gateway.metrics();
        let during = scene.others.take().map(Others::end).unwrap_or_default();
        let peak = memory.end();
        runtime.shutdown_background();
        let after = settled(&scene.gateway.memory(), resident);
        let is_alive = scene.gateway.is_alive();
        let mut outcome = Outcome::new(before, during, [resident, peak, after], cpu, took);
        outcome.check("the gateway still runs", is_alive, "it ended");
        Played {
            scene,
            outcome,
            metrics: [metrics_before, metrics_after],
            found,
        }
    }
}

/// Waits until each client was served once.
fn warm_up(others: &Others) {
    let goal = Goal::new(others.served(), ms(0));
    std::thread::sleep(WARM_UP);
    while goal.is_waiting_for_any() && goal.has_time() {
        std::thread::sleep(ms(10));
    }
    let _ = others.stats();
}

impl Before {
    /// How the others are served meanwhile.
    fn stats(self, others: &Others) -> ServiceStats {
        match self {
            Self::Nothing => {
                std::thread::sleep(BEFORE);
                others.stats()
            }
            Self::BusyCores => {
                let _busy = BusyMachine::start();
                std::thread::sleep(WARM_UP);
                let _ = others.stats();
                std::thread::sleep(BUSY_BEFORE);
                others.stats()
            }
            Self::Load(load) => {
                load();
                others.stats()
            }
        }
    }
}

impl<T> Played<T> {
    /// The other clients must not have suffered. Their p99 is a figure of every attack ([`append_figures`]).
    ///
    /// [`append_figures`]: crate::report::append_figures
    pub(crate) fn check_other_clients(&mut self) {
        self.others_are_served();
        self.runtimes_are_free();
    }

    /// Nothing of the other clients' may fail, and all of them get enough.
    pub(crate) fn others_are_served(&mut self) {
        let ServiceStats {
            failures,
            ended_watches,
            first,
            ..
        } = self.outcome.during.clone();
        let first = first.map(|first| format!(" ({first})")).unwrap_or_default();
        self.outcome.check(
            "no request or watch of others fails",
            failures == 0,
            format!("{failures} failures, {ended_watches} of them watches{first}"),
        );
        let goal = self.scene.goal.get();
        self.outcome.check(
            Goal::wanted(),
            goal.is_some_and(Goal::is_reached),
            goal.map_or_else(|| "none was set".to_owned(), Goal::found),
        );
    }

    /// No task may have kept a data core, or the control runtime, to itself for long.
    pub(crate) fn runtimes_are_free(&mut self) {
        self.data_cores_are_free();
        self.control_is_free();
    }

    /// No task may have kept a data core to itself for long. Where figures are measured, that is only noted: the same attack is
    /// evaluated by it where counts decide.
    fn data_cores_are_free(&mut self) {
        let [turns, long] = self.rises(["fairgate_turns_total", "fairgate_long_turns_total"]);
        let longest = self.metrics[1].value("fairgate_longest_turn_seconds") * 1000.0;
        let found = format!(
            "{long} of {turns} turns took over 20 ms of processor time, the longest {longest:.1} ms"
        );
        self.outcome.note(found.clone());
        if mode::measures() {
            return;
        }
        self.outcome.check(
            "no work that takes long is done on data cores",
            turns > 0.0 && long <= LONG_TURNS,
            found,
        );
    }

    /// No task may have kept the control runtime to itself for long; see [`data_cores_are_free`](Self::data_cores_are_free).
    fn control_is_free(&mut self) {
        let [long] = self.rises(["fairgate_control_long_turns_total"]);
        let longest = self.metrics[1].value("fairgate_control_longest_turn_seconds") * 1000.0;
        let found = format!(
            "{long} turns of the control runtime took over 10 ms of processor time, the longest {longest:.1} ms"
        );
        self.outcome.note(found.clone());
        if mode::measures() {
            return;
        }
        self.outcome.check(
            "no work that takes long is done on the control runtime",
            long <= LONG_TURNS,
            found,
        );
    }

    /// What is held of a budget must have been at most `limit` bytes, and at least `least`, so that the attack has tried it;
    /// nothing must be held in the end. `gauge` and `peak` are the names of its metrics.
    pub(crate) fn budget_is_kept(&mut self, metrics: (&str, &str), limit: u64, least: u64) {
        let mib = |bytes: f64| format!("{:.2} MiB", bytes / f64::from(1 << 20));
        self.is_kept(metrics, (least, limit), mib);
    }

    /// The same for what is counted in whole things, such as places.
    pub(crate) fn count_is_kept(&mut self, metrics: (&str, &str), limit: u64, least: u64) {
        self.is_kept(metrics, (least, limit), |count| count.to_string());
    }

    fn is_kept(
        &mut self,
        (gauge, peak): (&str, &str),
        (least, limit): (u64, u64),
        shown: impl Fn(f64) -> String,
    ) {
        let most = self.metrics[1].value(peak);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let is_kept = (least as f64..=limit as f64).contains(&most);
        self.outcome.check(
            format!("{peak} is between {least} and {limit}"),
            is_kept,
            shown(most),
        );
        self.outcome.note(format!("{peak}: {}", shown(most)));
        let held = self.left_of(gauge);
        self.outcome
            .check(format!("{gauge} is 0 in the end"), held == 0.0, shown(held));
    }

    /// What a gauge shows once it is 0, or after [`LIVENESS`].
    pub(crate) fn left_of(&self, gauge: &str) -> f64 {
        let begun = now();
        let held = || self.scene.gateway.metrics().value(gauge);
        let mut left = held();
        while left > 0.0 && begun.elapsed() < LIVENESS {
            std::thread::sleep(ms(50));
            left = held();
        }
        left
    }

    /// The other clients' p99 must be at most `times` what it was before, or `least`. To be used where the median of several plays
    /// is taken: then seconds before attacks, and attacks, alternate.
    pub(crate) fn others_wait_at_most(&mut self, times: u32, least: Duration) {
        let [before, during] =
            [&self.outcome.before, &self.outcome.during].map(|stats| stats.percentile(99));
        let allowed = least.max(before * times);
        self.outcome.measure(
            format!(
                "others' p99 is at most {times} times what it was, or {} ms",
                least.as_millis()
            ),
            (during.as_secs_f64(), allowed.as_secs_f64()),
            format!("{:.1} ms, it was {:.1}", millis(during), millis(before)),
        );
    }

    /// Reports by how much resident memory has grown, and how much has not come back. `bytes` is what growth there should be at
    /// most; what budgets hold is evaluated exactly, by [`budget_is_kept`](Self::budget_is_kept).
    pub(crate) fn report_memory(&mut self, bytes: u64) {
        self.report_growth(bytes);
        let [before, _, after] = self.outcome.resident;
        let left = after.saturating_sub(before);
        self.outcome.figure(
            "memory left behind",
            mebibytes(left),
            format!(
                "memory left behind: {} MiB, {} at most are expected",
                left >> 20,
                LEFT_BEHIND >> 20
            ),
        );
    }

    /// Reports by how much resident memory has grown.
    pub(crate) fn report_growth(&mut self, bytes: u64) {
        let [before, peak, _] = self.outcome.resident;
        let grown = peak.saturating_sub(before);
        self.outcome.figure(
            "memory grown",
            mebibytes(grown),
            format!(
                "memory has grown by {} MiB, {} at most are expected",
                grown >> 20,
                bytes >> 20
            ),
        );
    }

    /// How much these metrics have risen.
    pub(crate) fn rises<const N: usize>(&self, names: [&str; N]) -> [f64; N] {
        let [before, after] = &self.metrics;
        names.map(|name| after.value(name) - before.value(name))
    }

    /// One of the gateway's metrics with any of these words in its name or labels must have increased.
    pub(crate) fn a_metric_shows_it(&mut self, words: &[&str]) {
        let [before, after] = [&self.metrics[0], &self.metrics[1]].map(|all| all.about(words));
        self.outcome.check(
            format!("a metric shows it ({})", words.join(" or ")),
            after > before,
            "none rose",
        );
    }
}

/// Bytes as a figure, in whole MiB.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mebibytes(bytes: u64) -> (f64, &'static str) {
    ((bytes >> 20) as f64, "MiB")
}

/// The resident memory once it has shrunk again, or after [`RECOVERY`].
fn settled(memory: &Memory, before: u64) -> u64 {
    let begun = now();
    loop {
        let resident = memory.resident();
        let is_final = resident <= before + LEFT_BEHIND || !mode::measures();
        if is_final || begun.elapsed() > RECOVERY {
            return resident;
        }
        std::thread::sleep(ms(50));
    }
}

/// Measures the greatest resident memory of a process.
struct MemoryWatch {
    shared: Arc<(AtomicBool, AtomicU64)>,
    thread: std::thread::JoinHandle<()>,
}

impl MemoryWatch {
    fn start(memory: Memory) -> Self {
        let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        let noted = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !noted.0.load(Ordering::Relaxed) {
                noted.1.fetch_max(memory.resident(), Ordering::Relaxed);
                std::thread::sleep(ms(20));
            }
        });
        Self { shared, thread }
    }

    fn end(self) -> u64 {
        self.shared.0.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.shared.1.load(Ordering::Relaxed)
    }
}
