//! The task of a gateway in its fleet: it reports, applies ledgers, and gives flow control the seats that it may use.
//!
//! One turn each [`Settings::report_interval`]: read the ledger, hand the grant to flow control, report, and, while elected,
//! coordinate. The order matters: what a report says is held is read after limits were lowered.
//!
//! Not here: that a grant ends in time, which each level looks at by itself ([`SeatLease`]); the turn of the coordinator
//! (`coordination`).

use std::{sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::{Seats, dispatcher::SharedSeats, seat_lease::SeatLease},
    random::Random,
    sync,
    time::Time,
};
use fairgate_election::{Leadership, LeaseCandidate};
use fairgate_fleet::{
    division::FleetDivision,
    gateway::{FleetGateway, GatewayState, Load},
    identity::{Epoch, Fence, GatewayRun, KeyRevision},
    records::{FormatError, LevelGrant, Report, SeatLedger},
    remote::{Elsewhere, RemoteCharges},
    settings::Settings,
};
use tokio::sync::{Notify, watch};

use crate::{
    coordination::{Coordination, parse_report},
    elected::{ElectionCalls, follow_election},
    engine::{EngineError, EngineFailure, FleetEngine, FleetKey, StoreOutcome, StoredRecord},
    hash_keys::other_hash_keys,
    status::{FleetStatus, LEDGER_LOST, state_name},
};

/// How long the last report may take when the gateway stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Flow control, as its fleet uses it.
pub trait SeatUser: Send + Sync + 'static {
    /// What is held and asked for. The seats executing are those that may be in use until limits are changed.
    fn load(&self) -> Load;

    /// Looks at what flows hold now, to know what they receive. Called at a random moment between two turns.
    fn sample(&self);

    /// Uses these seats from now on.
    fn use_seats(&self, now: Time, seats: SharedSeats);

    /// What flows received at other gateways since the last time, and the tenants that have flows there from now on.
    fn note_elsewhere(&self, now: Time, elsewhere: Elsewhere);

    /// How seats are to be divided, and how many the servers have: those that this gateway reaches, or `reached` if another one reaches
    /// more, which this one would not know of. `reached` is 0 if no gateway reaches any, or none tells.
    fn division(&self, reached: Seats) -> (FleetDivision, Seats);
}

/// What a member of a fleet is made of.
pub struct MemberSettings<E, S> {
    /// Where reports and the ledger are.
    pub engine: Arc<E>,
    /// Who uses the seats.
    pub seats: Arc<S>,
    /// What all members agree on.
    pub settings: Settings,
    /// Who this gateway is.
    pub identity: GatewayRun,
    /// When the process began to serve, or earlier.
    pub started: Time,
    /// The clock of the gateway.
    pub clock: Clock,
    /// The seed of random pauses.
    pub seed: u64,
    /// Receives the state.
    pub status: Arc<FleetStatus>,
}

/// A member of a fleet.
pub struct FleetMember<E, S> {
    parts: MemberSettings<E, S>,
    gateway: FleetGateway,
    own_key: OwnKey,
    /// The lease of the grant in use; `None` without a grant.
    lease: Option<sync::Arc<SeatLease>>,
    /// What flow control was last given.
    given: Option<GivenSeats>,
    coordination: Coordination,
    remote: RemoteCharges,
    /// Whether flow control was told of other gateways since it had no grant.
    knows_elsewhere: bool,
    /// The last ledger that this gateway, or another one by its report, has applied. One that is read later is no older, unless somebody
    /// has meddled with it.
    known_epoch: Epoch,
    state: Option<GatewayState>,
    problem: Option<EngineError>,
    /// Notified when this gateway cannot coordinate and another one may be able to.
    resigns: Arc<Notify>,
}

/// What flow control was given.
#[derive(Debug, PartialEq, Eq)]
struct GivenSeats {
    seats: Seats,
    levels: Vec<LevelGrant>,
    floor: Seats,
    is_granted: bool,
}

/// What is known of the key of this gateway's report.
#[derive(Clone, Copy, Debug)]
struct OwnKey {
    /// `None`: it must be read.
    revision: Option<KeyRevision>,
    /// The revision of the last report of this run that is known to be stored: what another run writes after that comes from a process
    /// that has the same name. What is older was there before, and is found again when the engine is restored from a backup.
    stored: Option<KeyRevision>,
}

impl<E: FleetEngine, S: SeatUser> FleetMember<E, S> {
    /// A member that does nothing yet; see [`Self::run`]. Flow control has no seat until then.
    pub fn new(parts: MemberSettings<E, S>) -> Self {
        let identity = parts.identity.clone();
        // A turn may write although the one before did so a little later in its interval, as calls take time.
        let mut settings = parts.settings.clone();
        settings.report_interval = settings.report_interval * 3 / 4;
        settings.ledger_interval = settings.ledger_interval * 3 / 4;
        Self {
            gateway: FleetGateway::new(settings.clone(), identity, parts.started),
            coordination: Coordination::new(settings),
            own_key: OwnKey {
                revision: None,
                stored: None,
            },
            remote: RemoteCharges::default(),
            knows_elsewhere: false,
            known_epoch: Epoch::default(),
            lease: None,
            given: None,
            state: None,
            problem: None,
            resigns: Arc::default(),
            parts,
        }
    }

    /// Runs until `stop` completes, when nothing may be dispatched any more. Then it says so, and gives up coordinating; both take at
    /// most some seconds.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let api = ElectionCalls {
            engine: Arc::clone(&self.parts.engine),
            clock: self.parts.clock.clone(),
            status: Arc::clone(&self.parts.status),
        };
        let identity = &self.parts.identity;
        let candidate = LeaseCandidate {
            namespace: String::new(),
            name: "coordinator".to_owned(),
            identity: format!("{}-{:016x}", identity.name, identity.incarnation),
            task: "the fleet's coordinator",
        };
        let clock = self.parts.clock.clone();
        let mut leadership = Leadership::new(&api, &clock, Some(candidate), self.parts.seed);
        let (sender, elected) = watch::channel(None);
        let resigns = Arc::clone(&self.resigns);
        tokio::select! {
            () = stop => {}
            () = follow_election(&mut leadership, &sender, &resigns) => {}
            () = self.work(&elected) => {}
        }
        if tokio::time::timeout(FAREWELL, self.leave()).await.is_err() {
            tracing::warn!(
                "the fleet was not told that this gateway stops; its seats come back when it has been silent for long enough"
            );
        }
        leadership.release().await;
    }

    async fn work(&mut self, elected: &watch::Receiver<Option<Fence>>) {
        let interval = self.parts.settings.report_interval;
        let mut random = Random::seeded(self.parts.seed);
        loop {
            let now = self.now();
            let next = self.parts.clock.instant(now.plus(interval));
            let moment = now.plus(interval.mul_f64(random.unit()));
            let moment = self.parts.clock.instant(moment);
            let fence = *elected.borrow();
            self.turn(fence).await;
            tokio::time::sleep_until(moment).await;
            self.parts.seats.sample();
            tokio::time::sleep_until(next).await;
        }
    }

    /// One turn. `fence` is that of this gateway's coordinator, if it is elected.
    async fn turn(&mut self, fence: Option<Fence>) {
        self.problem = None;
        if !self.coordination.is_active(fence) || self.is_ledger_old() {
            self.read_ledger().await;
        }
        self.give_seats();
        self.report().await;
        self.give_seats();
        self.coordinate(fence).await;
        self.give_seats();
        self.show();
    }

    fn now(&self) -> Time {
        self.parts.clock.now()
    }

    /// Whether the coordinator, which knows what it has written, reads the ledger again: somebody may have deleted it.
    fn is_ledger_old(&self) -> bool {
        let limit = self.parts.settings.lease / 20;
        let read = self.parts.status.with(|view| view.ledger_read);
        read.is_none_or(|read| self.now().since(read) >= limit)
    }

    async fn read_ledger(&mut self) {
        match self.read_ledger_record().await {
            Ok((ledger, _)) => self.apply(&ledger),
            Err(error) => self.failed(&error),
        }
    }

    /// The ledger as it is stored, an empty one if there is none.
    async fn read_ledger_record(&self) -> Result<(SeatLedger, KeyRevision), EngineError> {
        let read = self.in_time(self.parts.engine.read(&FleetKey::Ledger));
        let Some(StoredRecord { value, revision }) = read.await? else {
            return Ok((SeatLedger::default(), KeyRevision(0)));
        };
        let ledger = SeatLedger::parse(&value);
        let ledger = ledger.map_err(|error| EngineError::of_record("ledger", &error))?;
        Ok((ledger, revision))
    }

    /// The gateway learns of a ledger that is stored.
    fn apply(&mut self, ledger: &SeatLedger) {
        let now = self.now();
        let before = self.gateway.epoch();
        self.gateway.apply(now, ledger);
        if self.gateway.epoch() != before {
            let elsewhere = self.remote.take(ledger, &self.parts.identity);
            self.parts.seats.note_elsewhere(now, elsewhere);
            self.knows_elsewhere = true;
        }
        self.known_epoch = self.known_epoch.max(self.gateway.epoch());
        self.note_lost_ledger(ledger.epoch < self.known_epoch);
        self.parts.status.update(|view| {
            view.ledger_read = Some(now);
            if view.ledger_lost {
                return;
            }
            if view.ledger_since.is_none() || view.ledger.epoch != ledger.epoch {
                view.ledger_since = Some(now);
                view.ledger = ledger.clone();
            }
        });
    }

    /// Says once that the ledger is lost, and once that it is there again.
    fn note_lost_ledger(&self, is_lost: bool) {
        self.parts.status.update(|view| {
            if view.ledger_lost == is_lost {
                return;
            }
            view.ledger_lost = is_lost;
            if is_lost {
                tracing::error!("fleet: {LEDGER_LOST}");
            } else {
                tracing::info!("fleet: the ledger is there again");
            }
        });
    }

    /// A call that is given up before the grant would expire because of it.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let limit = self.parts.settings.lease / 4;
        let called = tokio::time::timeout(limit, call).await;
        called.unwrap_or_else(|_| {
            let why = "the engine does not answer";
            Err(EngineError::of(EngineFailure::NoAnswer, why))
        })
    }

    fn failed(&mut self, error: &EngineError) {
        self.problem = Some(error.clone());
        self.parts.status.update(|view| view.failed_calls += 1);
    }

    /// Gives flow control the seats that may be used now, if they are others than before.
    fn give_seats(&mut self) {
        let now = self.now();
        let end = self.gateway.lease_end();
        let seats = self.gateway.may_use(now);
        let is_granted = now < end;
        let floor = if is_granted {
            self.gateway.after_lapse(now)
        } else {
            seats
        };
        if !is_granted {
            self.lease = None;
            if std::mem::take(&mut self.knows_elsewhere) {
                // A gateway that is cut off does not know what other gateways serve now.
                self.parts.seats.note_elsewhere(now, Elsewhere::default());
            }
        }
        // A new lease for each time that seats are granted: prolonging that of a grant that has expired would revive it.
        let lease = if let Some(lease) = &self.lease {
            lease.set_until(end);
            sync::Arc::clone(lease)
        } else {
            let until = if is_granted { end } else { Time::NEVER };
            sync::Arc::new(SeatLease::new(until))
        };
        if is_granted {
            self.lease = Some(sync::Arc::clone(&lease));
        }
        let levels = self.gateway.levels(now);
        let given = GivenSeats {
            seats,
            levels: levels.to_vec(),
            floor,
            is_granted,
        };
        if self.given.as_ref() != Some(&given) {
            let levels = levels.iter();
            let seats = SharedSeats {
                seats,
                levels: levels
                    .map(|level| (Arc::from(level.level.as_str()), level.seats))
                    .collect(),
                floor,
                lease,
            };
            self.given = Some(given);
            self.parts.seats.use_seats(now, seats);
        }
    }

    async fn report(&mut self) {
        if let Err(error) = self.try_report().await {
            // After an error it is not known what is stored, so the key is read before the next report.
            self.own_key.revision = None;
            self.failed(&error);
        }
    }

    async fn try_report(&mut self) -> Result<(), EngineError> {
        if self.own_key.revision.is_none() {
            self.read_own_key().await?;
        }
        let load = self.parts.seats.load();
        if self.gateway.is_report_due(self.now(), &load) {
            self.write_report(load).await?;
        }
        Ok(())
    }

    fn report_key(&self) -> FleetKey {
        FleetKey::Report(self.parts.identity.name.clone())
    }

    /// Finds out which revision the key of the report has.
    async fn read_own_key(&mut self) -> Result<(), EngineError> {
        let key = self.report_key();
        let stored = self.in_time(self.parts.engine.read(&key)).await?;
        let Some(StoredRecord { value, revision }) = stored else {
            self.own_key.revision = Some(KeyRevision(0));
            return Ok(());
        };
        match Report::parse(&value) {
            Ok(report) if report.gateway == self.parts.identity => {
                self.own_key.stored = Some(revision);
            }
            Ok(_) | Err(FormatError::Version { .. }) => self.found_another_run(revision),
            // Somebody has damaged it; the next report replaces it.
            Err(FormatError::Malformed { .. }) => {}
        }
        self.own_key.revision = Some(revision);
        Ok(())
    }

    /// The key of the report holds one of another run, at this revision.
    fn found_another_run(&mut self, revision: KeyRevision) {
        match self.own_key.stored {
            Some(stored) if revision > stored => self.gateway.displace(),
            Some(_) => tracing::warn!(
                "fleet: the engine holds an older report under this gateway's name than before: it was restored from a backup"
            ),
            None => {}
        }
    }

    async fn write_report(&mut self, load: Load) -> Result<(), EngineError> {
        let expected = self.own_key.revision.unwrap_or_default();
        let (report, receipt) = self.gateway.report(self.now(), load);
        let value = to_json(&report)?;
        let key = self.report_key();
        let written = self.in_time(self.parts.engine.write(&key, expected, value));
        match written.await? {
            StoreOutcome::Stored(revision) => {
                self.own_key = OwnKey {
                    revision: Some(revision),
                    stored: Some(revision),
                };
                self.gateway.reported(self.now(), receipt);
                self.parts.status.update(|view| view.reports_stored += 1);
            }
            StoreOutcome::Conflict => self.own_key.revision = None,
        }
        Ok(())
    }

    /// Divides the seats, if this gateway is elected.
    async fn coordinate(&mut self, fence: Option<Fence>) {
        if let Err(error) = self.coordination_turn(fence).await {
            if error.is_of_version {
                self.resigns.notify_one();
            }
            self.failed(&error);
        }
        let coordinates = self.coordination.is_active(fence);
        let (_, limit) = self.division();
        self.parts.status.update(|view| {
            view.limit = limit;
            view.coordinates = coordinates;
            if !coordinates {
                view.hash_keys_differ = None;
            }
        });
    }

    /// Says once which members hash flows with different keys, and once that none do any more.
    fn note_hash_keys(&self, reports: &[(Report, KeyRevision)]) {
        self.parts.status.update(|view| {
            let reports = reports.iter().map(|(report, _)| report);
            let found = other_hash_keys(&view.ledger, reports);
            if found == view.hash_keys_differ {
                return;
            }
            if let Some(which) = &found {
                tracing::error!("fleet: {which}");
            } else {
                tracing::info!("fleet: all gateways hash flows with the same key again");
            }
            view.hash_keys_differ = found;
        });
    }

    /// How seats are to be divided, and how many there are, as far as members have reported.
    fn division(&self) -> (FleetDivision, Seats) {
        let reached = self.coordination.widest_reach(self.now());
        self.parts.seats.division(reached)
    }

    async fn coordination_turn(&mut self, fence: Option<Fence>) -> Result<(), EngineError> {
        if self.coordination.wants_ledger(fence) {
            let (ledger, revision) = self.read_ledger_record().await?;
            self.apply(&ledger);
            let now = self.now();
            let (_, limit) = self.division();
            self.coordination.adopt(fence, limit, now, ledger, revision);
        }
        if !self.coordination.is_active(fence) {
            return Ok(());
        }
        let sent = self.now();
        let reports = self.in_time(self.parts.engine.read_reports()).await?;
        let terms = self.parts.settings.terms();
        let reports = reports
            .into_iter()
            .map(|record| parse_report(&record, &terms));
        let reports: Vec<_> = reports.collect::<Result<_, _>>()?;
        self.note_hash_keys(&reports);
        let epochs = reports.iter().map(|(report, _)| report.epoch);
        self.known_epoch = epochs.fold(self.known_epoch, Ord::max);
        let now = self.now();
        self.coordination.observe(sent, now, reports);
        // Only now: a new coordinator knows of no report before.
        let (division, limit) = self.division();
        let Some(proposal) = self.coordination.propose(now, &division, limit) else {
            return Ok(());
        };
        let value = to_json(&proposal.ledger)?;
        let expected = proposal.expected;
        let written = self.in_time(self.parts.engine.write(&FleetKey::Ledger, expected, value));
        let written = written.await;
        if let Some(ledger) = self.coordination.written(proposal.attempt, &written) {
            self.parts.status.update(|view| view.ledgers_written += 1);
            self.apply(&ledger);
        }
        written.map(drop)
    }

    /// Says that nothing will be dispatched any more, and that nothing executes.
    async fn leave(&mut self) {
        self.gateway.leave();
        self.give_seats();
        loop {
            let load = self.parts.seats.load();
            let is_idle = load.executing == 0;
            let is_key_known = self.own_key.revision.is_some() || self.read_own_key().await.is_ok();
            if self.gateway.is_displaced() {
                // The key is another process's.
                return;
            }
            let told = is_key_known && self.write_report(load).await.is_ok();
            if told && is_idle && self.own_key.revision.is_some() {
                self.show();
                return;
            }
            tokio::time::sleep(self.parts.settings.report_interval).await;
        }
    }

    /// Shows the state to operators, and logs what has changed.
    fn show(&mut self) {
        let now = self.now();
        let state = self.gateway.state(now);
        let seats = self.gateway.may_use(now);
        if self.state.replace(state) != Some(state) {
            let epoch = self.gateway.epoch().0;
            let name = state_name(Some(state));
            match state {
                GatewayState::Granted | GatewayState::Starting | GatewayState::Leaving => {
                    tracing::info!(
                        state = name,
                        seats,
                        epoch,
                        "fleet: the state of this gateway changed"
                    );
                }
                GatewayState::Isolated if self.gateway.has_no_place() => tracing::warn!(
                    state = name,
                    seats,
                    epoch,
                    "fleet: fleet.maxGateways other gateways are listed, so this one may use no seats; raise it, or name the gateways in fleet.members"
                ),
                GatewayState::Isolated => tracing::warn!(
                    state = name,
                    seats,
                    epoch,
                    why = self.problem.as_ref().map(|problem| &*problem.why),
                    "fleet: this gateway is cut off from its fleet and uses its isolatedSeats only"
                ),
                GatewayState::Displaced => tracing::error!(
                    state = name,
                    name = self.parts.identity.name,
                    "fleet: another gateway reports under the same name; give each gateway a fleet.gateway of its own and restart this one"
                ),
            }
        }
        let held = self.parts.seats.load().executing;
        let end = self.gateway.lease_end();
        let failure = self.problem.as_ref().map(|problem| problem.failure);
        let problem = self.problem.as_ref().map(|problem| problem.why.clone());
        self.parts.status.update(|view| {
            if problem != view.problem {
                if let Some(why) = &problem {
                    tracing::warn!(%why, "fleet: the engine cannot be used; trying again");
                } else {
                    tracing::info!("fleet: the engine can be used again");
                }
            }
            view.state = Some(state);
            view.has_no_place = self.gateway.has_no_place();
            view.seats = seats;
            view.held = held;
            view.lease_end = end;
            view.problem = problem;
            view.failure = failure;
        });
    }
}

fn to_json(record: &impl serde::Serialize) -> Result<Vec<u8>, EngineError> {
    serde_json::to_vec(record).map_err(|error| EngineError::new(error.to_string()))
}
