//! Who is worse off than with the original, over many worlds in which arrivals change.

use std::fmt;

use fairgate_core::apf::policy::Semantics;

use super::{
    World, WorldReport,
    judge::{ClientComparison, FEWEST_REQUESTS, UnavoidablePart, compare, run_both},
    run, run_fluid, run_preferring,
};

/// Plays a world with the original and with what is compared with it, in this order.
pub type RunBoth = fn(&World) -> [WorldReport; 2];

/// The results of one world.
#[derive(Clone, Debug)]
pub struct ComparedWorld {
    /// The number by which it was drawn.
    pub number: u64,
    /// All its clients.
    pub clients: Vec<ClientComparison>,
    /// The fraction of the seats that were idle while a waiting request would have fitted, under Compatible and under
    /// Improved.
    pub idle: [f64; 2],
    /// The clients, by place, that are worse off than they may be even if they go before everybody else, and how much of it
    /// remains then: not [`UnavoidablePart::None`].
    pub unavoidable: Vec<(usize, UnavoidablePart)>,
    /// Each client that is worse off than it may be, with what a server that divides seats at each moment gives it instead of what
    /// Improved gives.
    pub fluid: Vec<ClientComparison>,
}

/// The worlds of one kind.
#[derive(Clone, Debug)]
pub struct ArrivalRow {
    /// The kind.
    pub name: &'static str,
    /// In the order of their numbers.
    pub worlds: Vec<ComparedWorld>,
}

impl ComparedWorld {
    /// Plays `world`, which has this number. Only clients with at least `fewest` requests are judged.
    pub fn play(world: &World, number: u64, tenant_weight: f64, fewest: u32) -> Self {
        Self::of(world, number, tenant_weight, fewest, &run_both(world))
    }

    /// Compares the reports of `world` under Compatible and under Improved.
    pub fn of(
        world: &World,
        number: u64,
        tenant_weight: f64,
        fewest: u32,
        reports: &[WorldReport; 2],
    ) -> Self {
        Self {
            number,
            clients: compare(world, reports, tenant_weight, fewest),
            idle: [reports[0].idle, reports[1].idle],
            unavoidable: Vec::new(),
            fluid: Vec::new(),
        }
    }

    /// As [`ComparedWorld::play`] with [`FEWEST_REQUESTS`], but the world is played again and lasts longer, if a client that would
    /// be judged has fewer requests with the original. `both` plays it, as [`run_both`].
    pub fn play_long_enough(
        mut world: World,
        number: u64,
        tenant_weight: f64,
        both: RunBoth,
    ) -> Self {
        let play = |world: &World| Self::of(world, number, tenant_weight, 0, &both(world));
        let mut played = play(&world);
        for _ in 0..2 {
            let judged = played.clients.iter().filter(|client| client.judged);
            let fewest = judged.map(ClientComparison::requests).min();
            let Some(fewest) = fewest.filter(|fewest| *fewest < FEWEST_REQUESTS) else {
                break;
            };
            // A fifth more than needed, since the numbers of requests vary; no more than tenfold, since a client
            // may never send enough.
            let times = 1.2 * f64::from(FEWEST_REQUESTS) / f64::from(fewest.max(1));
            world.seconds *= times.min(10.0);
            played = play(&world);
        }
        for client in &mut played.clients {
            client.judged &= client.requests() >= FEWEST_REQUESTS;
        }
        played.find_unavoidable(&world, tenant_weight);
        played.find_fluid(&world, tenant_weight);
        played
    }

    /// Plays `world` once more for each client that is worse off than it may be: with that client before everybody else.
    fn find_unavoidable(&mut self, world: &World, tenant_weight: f64) {
        let worse: Vec<ClientComparison> = self.exceptions().cloned().collect();
        if worse.is_empty() {
            return;
        }
        let original = run(world, Semantics::Compatible);
        let parts = worse.iter().map(|client| {
            let reports = [original.clone(), run_preferring(world, client.flow)];
            let clients = compare(world, &reports, tenant_weight, FEWEST_REQUESTS);
            (client.flow, client.unavoidable_part(&clients[client.flow]))
        });
        self.unavoidable = parts
            .filter(|(_, part)| *part != UnavoidablePart::None)
            .collect();
    }

    /// How much of the harm to a client remains if it goes before everybody else.
    fn unavoidable_part(&self, client: &ClientComparison) -> UnavoidablePart {
        let found = self
            .unavoidable
            .iter()
            .find(|(flow, _)| *flow == client.flow);
        found.map_or(UnavoidablePart::None, |(_, part)| *part)
    }

    /// Plays `world` once more with a server that divides seats at each moment, if somebody is worse off than he may be.
    fn find_fluid(&mut self, world: &World, tenant_weight: f64) {
        if self.exceptions().next().is_none() {
            return;
        }
        let flows = run_fluid(world, tenant_weight);
        let fluid = self
            .exceptions()
            .map(|client| client.with_fluid(&flows[client.flow]));
        self.fluid = fluid.collect();
    }

    /// What a server that divides seats at each moment gives a client that is worse off than it may be, and whether it is so with
    /// that server, too.
    pub fn with_fluid(&self, client: &ClientComparison) -> Option<(&ClientComparison, bool)> {
        let fluid = self.fluid.iter().find(|fluid| fluid.flow == client.flow)?;
        Some((fluid, client.is_worse_off_only_as(fluid)))
    }

    /// How many clients are worse off than they may be with a server that divides seats at each moment, too.
    fn fluid_too(&self) -> usize {
        let with_fluid = self
            .exceptions()
            .filter_map(|client| self.with_fluid(client));
        with_fluid.filter(|(_, too)| *too).count()
    }

    /// The least part of its ideal seats that a client used, under Compatible and under Improved. Clients that had fewer
    /// than [`FEWEST_REQUESTS`] with the original do not count.
    pub fn least_of_ideal(&self) -> [f64; 2] {
        let clients = || {
            self.clients
                .iter()
                .filter(|c| c.requests() >= FEWEST_REQUESTS)
        };
        [0, 1].map(|which| {
            let parts = clients().map(|client| client.seats[which] / client.ideal_seats);
            parts.fold(f64::INFINITY, f64::min)
        })
    }

    /// The clients that are worse off than they may be.
    pub fn exceptions(&self) -> impl Iterator<Item = &ClientComparison> {
        self.clients.iter().filter(|client| client.is_worse_off())
    }
}

impl ArrivalRow {
    /// Plays the worlds `numbers` of the kind of this name, which `draw` draws and `both` plays, as [`run_both`].
    pub fn play(
        name: &'static str,
        tenant_weight: f64,
        both: RunBoth,
        numbers: impl IntoIterator<Item = u64>,
        draw: impl Fn(u64) -> World,
    ) -> Self {
        let play =
            |number| ComparedWorld::play_long_enough(draw(number), number, tenant_weight, both);
        let worlds = numbers.into_iter().map(play);
        Self {
            name,
            worlds: worlds.collect(),
        }
    }

    /// Whether there are bounds for any client.
    pub fn judges_anybody(&self) -> bool {
        self.judged().next().is_some()
    }

    fn judged(&self) -> impl Iterator<Item = &ClientComparison> {
        let clients = self.worlds.iter().flat_map(|world| &world.clients);
        clients.filter(|client| client.judged)
    }

    fn worlds_with(&self, what: fn(&ClientComparison) -> bool) -> usize {
        let has = |world: &&ComparedWorld| world.clients.iter().any(what);
        self.worlds.iter().filter(has).count()
    }

    /// A line for each client that is worse off than it may be.
    pub fn exceptions(&self) -> Vec<String> {
        let lines = self.worlds.iter().flat_map(|world| {
            let line = |client: &ClientComparison| {
                let mark = match world.unavoidable_part(client) {
                    UnavoidablePart::None => "",
                    UnavoidablePart::Part => " (unavoidable in part)",
                    UnavoidablePart::Whole => " (unavoidable)",
                };
                let fluid = world
                    .with_fluid(client)
                    .map_or_else(String::new, fluid_text);
                format!(
                    "{} {}: {}{mark}{fluid}",
                    self.name,
                    world.number,
                    ClientLine(client)
                )
            };
            world.exceptions().map(line)
        });
        lines.collect()
    }
}

/// What a server that divides seats at each moment gives a client, and whether it is worse off than it may be there, too.
fn fluid_text((client, too): (&ClientComparison, bool)) -> String {
    format!(
        "   ideal server: p99 {:>8.1} ms   mean {:>7.1} ms   seats {:>7.3}   wait {:>5.2} of bound, share {:>5.3}{}",
        client.p99[1] * 1e3,
        client.mean[1] * 1e3,
        client.seats[1],
        client.wait_excess(),
        client.share_ratio(),
        if too { " (so there, too)" } else { "" },
    )
}

/// The heading of the rows.
pub const HEADING: &str = concat!(
    "                     WORLDS CLIENTS  WAIT LONGER THAN MAY BE   LESS THAN MAY BE   UNAVOIDABLE  IDEAL TOO  P99 TO ORIGINAL'S  LEAST OF IDEAL      IDLE %\n",
    "                             JUDGED  WORLDS CLIENTS    WORST   WORLDS CLIENTS WORST  OF THESE   OF THESE   MEDIAN  9 IN 10    comp. impr.   comp. impr.",
);

impl fmt::Display for ArrivalRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |what: fn(&ClientComparison) -> bool| self.judged().filter(|c| what(c)).count();
        let longest = self.judged().map(ClientComparison::wait_excess);
        let within_share = self.judged().filter(|client| client.within_share);
        let least = within_share.map(ClientComparison::share_ratio);
        let p99 = sorted(self.judged().map(ClientComparison::p99_ratio));
        let median = |of: fn(&ComparedWorld) -> [f64; 2]| {
            [0, 1].map(|which| quantile(&sorted(self.worlds.iter().map(|w| of(w)[which])), 0.5))
        };
        let of_ideal = median(ComparedWorld::least_of_ideal);
        let idle = median(|world| world.idle);
        write!(
            f,
            "{:<20} {:>6} {:>7}",
            self.name,
            self.worlds.len(),
            self.judged().count()
        )?;
        write!(
            f,
            "  {:>6} {:>7} {:>8.2}",
            self.worlds_with(ClientComparison::waits_too_long),
            count(ClientComparison::waits_too_long),
            longest.fold(0.0, f64::max)
        )?;
        write!(
            f,
            "   {:>6} {:>7} {:>5.2}",
            self.worlds_with(ClientComparison::gets_too_little),
            count(ClientComparison::gets_too_little),
            least.reduce(f64::min).unwrap_or(1.0)
        )?;
        let parts = self.worlds.iter().flat_map(|world| &world.unavoidable);
        let unavoidable = parts
            .filter(|(_, part)| *part == UnavoidablePart::Whole)
            .count();
        let fluid_too: usize = self.worlds.iter().map(ComparedWorld::fluid_too).sum();
        write!(f, "  {unavoidable:>8} {fluid_too:>10}")?;
        let (half, nine) = (quantile(&p99, 0.5), quantile(&p99, 0.9));
        write!(f, "   {half:>6.2} {nine:>8.2}")?;
        write!(f, "    {:>5.2} {:>5.2}", of_ideal[0], of_ideal[1])?;
        write!(f, "   {:>5.1} {:>5.1}", idle[0] * 100.0, idle[1] * 100.0)
    }
}

/// One client: seats, waits and losses, under Compatible and under Improved.
pub struct ClientLine<'a>(pub &'a ClientComparison);

impl fmt::Display for ClientLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.0;
        let milli = |seconds: f64| seconds * 1e3;
        write!(
            f,
            "{:<14} ideal {:>7.3} seats {:>7.3} {:>7.3}   p99 {:>8.1} {:>8.1} ms   mean {:>7.1} {:>7.1} ms   refused {:>5} {:>5}   cancelled {:>5} {:>5}   executed {:>6} {:>6}   wait {:>5.2} of bound, share {:>5.3}{}",
            client.name,
            client.ideal_seats,
            client.seats[0],
            client.seats[1],
            milli(client.p99[0]),
            milli(client.p99[1]),
            milli(client.mean[0]),
            milli(client.mean[1]),
            client.refused[0],
            client.refused[1],
            client.cancelled[0],
            client.cancelled[1],
            client.executed[0],
            client.executed[1],
            client.wait_excess(),
            client.share_ratio(),
            match (client.judged, client.within_share) {
                (false, _) => " (not judged)",
                (true, false) => " (only p99 is judged)",
                (true, true) => "",
            },
        )
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The quantile `part` of ascending values.
fn quantile(all: &[f64], part: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into the values"
    )]
    let place = (super::real(all.len().saturating_sub(1)) * part).round() as usize;
    all.get(place).copied().unwrap_or_default()
}
