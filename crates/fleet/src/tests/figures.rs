//! Convergence and fairness in virtual time, with an engine that answers after some milliseconds and loses nothing.
//!
//! Each gateway serves in steps of 10 ms: each seat goes to the flow with the least virtual time, which advances by what it got here
//! and by remote charges.
//!
//! It does not show what becomes of that in a gateway: requests that last and have widths, queues, how a dispatcher divides a grant among
//! its levels, what flows are measured to receive, and whether reports are due while only that changes. `fairgate_simulate::fleet`
//! plays all of these with the program's own dispatcher.

use std::{collections::BTreeMap, time::Duration};

use fairgate_core::{
    apf::borrowing::LevelLimits,
    fairness::{jain_index, max_min_shares},
    random::Random,
    time::Time,
};

use crate::{
    coordinator::Coordinator,
    division::{FleetDivision, FleetLevel},
    gateway::{FleetGateway, Load},
    identity::{Fence, GatewayRun, KeyRevision},
    records::{FlowLoad, LevelLoad, Report, SeatLedger},
    remote::RemoteCharges,
    settings::{Reclaim, Settings},
};

/// Milliseconds of a step.
const STEP: u64 = 10;
/// Milliseconds of a message.
const DELAY: u64 = 10;

/// A flow at one gateway.
#[derive(Clone, Default)]
struct LocalFlow {
    flow: u64,
    level: usize,
    /// The most seats that it uses at once.
    threads: u32,
    /// Milliseconds at which it begins.
    begins: u64,
    virtual_time: u64,
    work: u64,
}

struct Site {
    gateway: FleetGateway,
    charges: RemoteCharges,
    flows: Vec<LocalFlow>,
    level_seats: Vec<u32>,
}

struct Fleet {
    now: u64,
    sites: Vec<Site>,
    coordinator: Coordinator,
    division: FleetDivision,
    has_charges: bool,
    /// Milliseconds.
    report_every: u64,
    /// Messages: when they arrive.
    reports: Vec<(u64, usize, Report, crate::gateway::Receipt)>,
    ledgers: Vec<(u64, SeatLedger)>,
    revision: u64,
}

fn identity(number: usize) -> GatewayRun {
    GatewayRun {
        name: format!("gateway-{number}"),
        incarnation: 1,
    }
}

fn at(millis: u64) -> Time {
    Time::from_nanos((millis + 1) * 1_000_000)
}

impl Fleet {
    fn new(gateways: usize, levels: &[u32], report_every: u64) -> Self {
        let total: u32 = levels.iter().sum();
        let mut settings = Settings::new(u32::try_from(gateways).unwrap(), 1, Reclaim::Prompt);
        settings.report_interval = Duration::from_millis(report_every);
        let level = |(number, nominal): (usize, &u32)| FleetLevel {
            name: number.to_string(),
            limits: LevelLimits {
                nominal: *nominal,
                min: nominal / 2,
                max: total,
            },
            exempt: false,
        };
        let site = |number| Site {
            gateway: FleetGateway::new(settings.clone(), identity(number), at(0)),
            charges: RemoteCharges::default(),
            flows: Vec::new(),
            level_seats: vec![0; levels.len()],
        };
        Self {
            now: 0,
            sites: (0..gateways).map(site).collect(),
            division: FleetDivision {
                levels: levels.iter().enumerate().map(level).collect(),
                tenant_weight: 4,
                floor: 1,
            },
            coordinator: Coordinator::new(
                settings,
                Fence(1),
                total,
                at(0),
                SeatLedger::default(),
                KeyRevision(0),
            ),
            has_charges: true,
            report_every,
            reports: Vec::new(),
            ledgers: Vec::new(),
            revision: 1,
        }
    }

    fn run_to(&mut self, end: u64) {
        while self.now < end {
            self.deliver();
            self.report();
            self.propose();
            for site in &mut self.sites {
                site.serve(self.now);
            }
            self.now += STEP;
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.reports)
            .into_iter()
            .partition(|r| r.0 <= now);
        self.reports = later;
        let due: Vec<(u64, usize, Report, _)> = due;
        for (_, number, report, receipt) in due {
            self.revision += 1;
            self.sites[number].gateway.reported(at(now), receipt);
            self.coordinator
                .observe(at(now), report, KeyRevision(self.revision));
        }
        self.coordinator.read_all(at(now), at(now), []);
        let (due, later) = std::mem::take(&mut self.ledgers)
            .into_iter()
            .partition(|l| l.0 <= now);
        self.ledgers = later;
        let due: Vec<(u64, SeatLedger)> = due;
        for (_, ledger) in due {
            for (number, site) in self.sites.iter_mut().enumerate() {
                site.apply(now, &ledger, &identity(number), self.has_charges);
            }
        }
    }

    fn report(&mut self) {
        for (number, site) in self.sites.iter_mut().enumerate() {
            let load = site.load(self.now);
            // While flows compete, work is reported at each interval.
            let is_work_due = self.now.is_multiple_of(self.report_every);
            if is_work_due || site.gateway.is_report_due(at(self.now), &load) {
                let (report, receipt) = site.gateway.report(at(self.now), load);
                self.reports
                    .push((self.now + DELAY, number, report, receipt));
            }
        }
    }

    fn propose(&mut self) {
        let division = &self.division;
        let proposal = self.coordinator.propose(at(self.now), |members, pool| {
            division.targets(members, pool)
        });
        if let Some(proposal) = proposal {
            self.revision += 1;
            self.coordinator
                .stored(proposal.attempt, KeyRevision(self.revision));
            self.ledgers.push((self.now + DELAY, proposal.ledger));
        }
    }

    /// What each flow received, in seat-milliseconds.
    fn work(&self) -> BTreeMap<u64, u64> {
        let mut works = BTreeMap::new();
        for flow in self.sites.iter().flat_map(|site| &site.flows) {
            *works.entry(flow.flow).or_default() += flow.work;
        }
        works
    }

    /// The seats of each flow in the next `millis`.
    fn rates(&mut self, millis: u64) -> BTreeMap<u64, f64> {
        let before = self.work();
        self.run_to(self.now + millis);
        let gained =
            |(flow, work): (u64, u64)| (flow, as_f64(work - before[&flow]) / as_f64(millis));
        self.work().into_iter().map(gained).collect()
    }
}

impl Site {
    fn load(&self, now: u64) -> Load {
        let active = || self.flows.iter().filter(|flow| flow.begins <= now);
        let level = |level: usize| LevelLoad {
            level: level.to_string(),
            demand: active()
                .filter(|f| f.level == level)
                .map(|f| f.threads)
                .sum(),
            ..LevelLoad::default()
        };
        let flow = |flow: &LocalFlow| FlowLoad {
            level: flow.level.to_string(),
            flow: flow.flow,
            tenant: flow.flow,
            demand: flow.threads,
            work: flow.work,
        };
        Load {
            executing: 0,
            reach: None,
            hash_key_mark: None,
            levels: (0..self.level_seats.len()).map(level).collect(),
            flows: active().map(flow).collect(),
            tenants: Vec::new(),
        }
    }

    fn apply(&mut self, now: u64, ledger: &SeatLedger, own: &GatewayRun, has_charges: bool) {
        self.gateway.apply(at(now), ledger);
        if let Some(entry) = ledger.entry(own) {
            self.level_seats = entry.levels.iter().map(|level| level.seats).collect();
        }
        for charge in self.charges.take(ledger, own).charges {
            let flows = self
                .flows
                .iter_mut()
                .filter(|flow| flow.flow == charge.flow);
            for flow in flows.filter(|_| has_charges) {
                flow.virtual_time += charge.work;
            }
        }
    }

    /// Each seat of a step goes to the flow that is furthest behind; nobody is more than a second of 60 seats ahead or behind.
    fn serve(&mut self, now: u64) {
        let may_use = self.gateway.may_use(at(now));
        let mut left = may_use;
        for level in 0..self.level_seats.len() {
            let mut used = vec![0; self.flows.len()];
            let here = |flow: &LocalFlow| flow.level == level && flow.begins <= now;
            let active = self
                .flows
                .iter()
                .filter(|flow| here(flow) && flow.begins < now);
            let least = active.map(|flow| flow.virtual_time).min().unwrap_or(0);
            let new = self.flows.iter_mut().filter(|flow| here(flow));
            new.for_each(|flow| flow.virtual_time = flow.virtual_time.clamp(least, least + 20_000));
            for _ in 0..self.level_seats[level].min(left) {
                let open = (0..used.len())
                    .filter(|i| here(&self.flows[*i]) && used[*i] < self.flows[*i].threads);
                let Some(next) = open.min_by_key(|i| self.flows[*i].virtual_time) else {
                    break;
                };
                used[next] += 1;
                left -= 1;
                self.flows[next].virtual_time += STEP;
                self.flows[next].work += STEP;
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

fn flow(flow: u64, threads: u32) -> LocalFlow {
    LocalFlow {
        flow,
        threads,
        ..LocalFlow::default()
    }
}

#[test]
fn a_flow_on_three_gateways_gets_one_share() {
    for has_charges in [false, true] {
        let mut fleet = Fleet::new(3, &[60], 100);
        fleet.has_charges = has_charges;
        for (number, site) in fleet.sites.iter_mut().enumerate() {
            site.flows = vec![flow(99, 100), flow(number as u64, 100)];
        }
        fleet.run_to(5_000);
        let elephant = fleet.rates(10_000)[&99];
        eprintln!(
            "flow on three beside three on one, charges {has_charges}: {elephant:.1} of ideal 15"
        );
        assert!(!has_charges || (elephant - 15.0).abs() < 1.5, "{elephant}");
        let mut fleet = Fleet::new(3, &[60], 100);
        fleet.has_charges = has_charges;
        fleet
            .sites
            .iter_mut()
            .for_each(|site| site.flows = vec![flow(99, 100)]);
        fleet.sites[0]
            .flows
            .extend((0..9).map(|mouse| flow(mouse, 100)));
        fleet.run_to(5_000);
        let elephant = fleet.rates(10_000)[&99];
        eprintln!(
            "elephant on three, nine on one, charges {has_charges}: {elephant:.1} of ideal 6"
        );
        assert!(!has_charges || (elephant - 6.0).abs() < 0.7, "{elephant}");
    }
}

fn median(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

#[test]
fn a_new_flow_soon_has_its_share() {
    for (interval, most, bound) in [(100, 0.6, 1.0), (500, 1.0, 1.6)] {
        let times: Vec<f64> = (0..30).map(|seed| time_to_share(seed, interval)).collect();
        let (median, max) = median(times);
        eprintln!(
            "report every {interval} ms: 90 % of the share after {median:.2} s, at most {max:.2} s"
        );
        assert!(median <= most && max <= bound, "{median} {max}");
    }
}

/// Seconds until a new flow at one gateway uses 90 % of its share, with three others at the other gateways.
fn time_to_share(seed: u64, interval: u64) -> f64 {
    let mut random = Random::seeded(seed);
    let mut fleet = Fleet::new(3, &[60], interval);
    let begins = 3_000 + random.within(0..50) * STEP;
    for site in &mut fleet.sites {
        site.flows = vec![flow(random.number(), 100)];
    }
    let number = usize::try_from(random.within(0..3)).unwrap();
    fleet.sites[number].flows.push(LocalFlow {
        begins,
        ..flow(1, 100)
    });
    fleet.run_to(begins);
    loop {
        if fleet.rates(STEP)[&1] >= 13.5 {
            return as_f64(fleet.now - begins) / 1000.0;
        }
        assert!(fleet.now < begins + 10_000, "seed {seed}: never");
    }
}

#[test]
fn random_flows_on_three_to_eight_gateways_get_fair_shares() {
    for has_charges in [false, true] {
        let figures = (0..30).map(|seed| fairness(seed, has_charges));
        let (jains, errors): (Vec<f64>, Vec<f64>) = figures.unzip();
        let (jain, _) = median(jains);
        let (error, worst) = median(errors);
        eprintln!(
            "charges {has_charges}: Jain {jain:.3}, worst share error {error:.2}, of all fleets {worst:.2}"
        );
        assert!(
            !has_charges || (jain >= 0.98 && error <= 0.1),
            "{jain} {error}"
        );
    }
}

/// Jain's index, and the largest part by which a flow is off its ideal.
fn fairness(seed: u64, has_charges: bool) -> (f64, f64) {
    let mut random = Random::seeded(seed);
    let gateways = usize::try_from(random.within(3..9)).unwrap();
    let levels = [vec![120], vec![80, 40]][usize::from(random.percent(50))].clone();
    let mut fleet = Fleet::new(gateways, &levels, 100);
    fleet.has_charges = has_charges;
    let mut level_of = BTreeMap::new();
    for number in 0..random.within(4..13) {
        let level = usize::try_from(random.within(0..levels.len() as u64)).unwrap();
        level_of.insert(number, level);
        let spread = random.within(1..gateways as u64 + 1);
        for _ in 0..spread {
            let site = usize::try_from(random.within(0..gateways as u64)).unwrap();
            let flows = &mut fleet.sites[site].flows;
            if flows.iter().all(|flow| flow.flow != number) {
                flows.push(LocalFlow {
                    level,
                    ..flow(number, 200)
                });
            }
        }
    }
    fleet.run_to(5_000);
    let rates = fleet.rates(10_000);
    let mut parts = Vec::new();
    for level in 0..levels.len() {
        let flows: Vec<u64> = level_of
            .iter()
            .filter(|(_, l)| **l == level)
            .map(|(f, _)| *f)
            .collect();
        let capacity: f64 = flows.iter().map(|flow| rates[flow]).sum();
        let ideal = max_min_shares(&vec![200.0; flows.len()], capacity);
        parts.extend(
            flows
                .iter()
                .zip(ideal)
                .map(|(flow, ideal)| rates[flow] / ideal),
        );
    }
    let error = parts
        .iter()
        .map(|part| (part - 1.0).abs())
        .fold(0.0, f64::max);
    (jain_index(parts).unwrap_or(0.0), error)
}
