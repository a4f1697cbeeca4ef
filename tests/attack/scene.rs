//! The surroundings of one attack: a fake upstream, a gateway in front of it, and other clients.
//!
//! What is counted decides: failures, responses that others get while the attack is on ([`Goal`]), what the gateway's budgets
//! hold, long turns of its data cores. Times and resident memory are figures; bounds on them are only checked where figures
//! are measured, beside seconds before the attack.

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
/// Other clients must not wait longer than this (p99), or than [`TIMES`] times as long as before. The bound is
/// generous since attackers, others and gateway share the machine: a service that stops is recognized by its failures.
const BOUND: Duration = ms(500);
const TIMES: u32 = 10;
/// Resident memory that an attack may leave behind: what the allocator keeps.
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
    /// The other clients must not have suffered.
    pub(crate) fn check_other_clients(&mut self) {
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
        self.data_cores_are_free();
        let [before, during] =
            [&self.outcome.before, &self.outcome.during].map(|stats| stats.percentile(99));
        let bound = BOUND.max(before * TIMES);
        self.outcome.measure(
            format!("others' p99 stays below {} ms", bound.as_millis()),
            (during.as_secs_f64(), bound.as_secs_f64()),
            format!("{} ms", during.as_millis()),
        );
    }

    /// No task may have kept a data core to itself for long.
    pub(crate) fn data_cores_are_free(&mut self) {
        let [turns, long] = self.rises(["fairgate_turns_total", "fairgate_long_turns_total"]);
        let longest = self.metrics[1].value("fairgate_longest_turn_seconds") * 1000.0;
        let found = format!(
            "{long} of {turns} turns took over 20 ms of processor time, the longest {longest:.1} ms"
        );
        self.outcome.check(
            "no work that takes long is done on data cores",
            turns > 0.0 && long <= LONG_TURNS,
            found.clone(),
        );
        self.outcome.note(found);
    }

    /// No task may have kept the control runtime to itself for long.
    pub(crate) fn control_is_free(&mut self) {
        let [long] = self.rises(["fairgate_control_long_turns_total"]);
        let longest = self.metrics[1].value("fairgate_control_longest_turn_seconds") * 1000.0;
        let found = format!(
            "{long} turns of the control runtime took over 10 ms of processor time, the longest {longest:.1} ms"
        );
        self.outcome.check(
            "no work that takes long is done on the control runtime",
            long <= LONG_TURNS,
            found.clone(),
        );
        self.outcome.note(found);
    }

    /// What is held of a budget must have been at most `limit` bytes, and at least `least`, so that the attack has tried it;
    /// nothing must be held in the end. `gauge` and `peak` are the names of its metrics.
    pub(crate) fn budget_is_kept(&mut self, (gauge, peak): (&str, &str), limit: u64, least: u64) {
        let most = self.metrics[1].value(peak);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let is_kept = (least as f64..=limit as f64).contains(&most);
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
        self.outcome.check(
            format!("{peak} is between {least} and {limit}"),
            is_kept,
            mib(most),
        );
        self.outcome.note(format!("{peak}: {}", mib(most)));
        let begun = now();
        let mut held = self.scene.gateway.metrics().value(gauge);
        while held > 0.0 && begun.elapsed() < LIVENESS {
            std::thread::sleep(ms(50));
            held = self.scene.gateway.metrics().value(gauge);
        }
        self.outcome
            .check(format!("{gauge} is 0 in the end"), held == 0.0, mib(held));
    }

    /// The other clients' p99 must be at most `times` what it was before, or `least`.
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

    /// Memory must not have grown by more than `bytes`, and must have shrunk again.
    pub(crate) fn memory_is_bounded(&mut self, bytes: u64) {
        self.memory_grows_by_at_most(bytes);
        let [before, _, after] = self.outcome.resident;
        let left = after.saturating_sub(before);
        self.outcome.measure(
            "memory shrinks again",
            parts(left, LEFT_BEHIND),
            format!("{} MiB more than before", left >> 20),
        );
    }

    /// Memory must not have grown by more than `bytes`.
    pub(crate) fn memory_grows_by_at_most(&mut self, bytes: u64) {
        let [before, peak, _] = self.outcome.resident;
        let grown = peak.saturating_sub(before);
        self.outcome.measure(
            format!("memory grows by {} MiB at most", bytes >> 20),
            parts(grown, bytes),
            format!("{} MiB", grown >> 20),
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

/// Bytes found and allowed.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn parts(found: u64, allowed: u64) -> (f64, f64) {
    (found as f64, allowed as f64)
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
