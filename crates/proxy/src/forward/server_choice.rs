//! Which of several servers a call goes to, and the charge it is there.
//!
//! A client's connection prefers one server, unless requests are spread one by one. A call that finds all servers full waits for the first
//! that has room: its level has given it seats, so this is a matter of a request that is wider than what any server has left, or of
//! servers that were lost a moment ago.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    future::poll_fn,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::StatusCode;
use http_body::Body as _;
use smallvec::SmallVec;

use super::{UpstreamSettings, route::ServerRoute, send_failure::Blame};
use fairgate_base::clock::Clock;
use fairgate_call::{BodyEnd, Call, ClientBody, Peer, Reply, ReplyGuard, RequestKind};
use fairgate_core::servers::{
    load::{Choice, HasLoad as _, Preference, ServerCharge, ServerDemand, choose},
    outcomes::AwaitedAnswer,
    waiting::WaitingForServer,
};
use fairgate_upstream::servers::{
    Spread, UpstreamServer, UpstreamServers,
    affinity::{Affinity, LongRunningAt},
};

/// The servers, and this core's ways to them.
pub(super) struct ServerChoice {
    servers: Arc<UpstreamServers>,
    settings: Arc<UpstreamSettings>,
    clock: Clock,
    current: RefCell<Rc<ServerRoutes>>,
    /// Where to begin among equally loaded servers.
    turn: Cell<usize>,
}

/// The servers at one moment, and the way to each.
struct ServerRoutes {
    servers: Arc<Vec<Arc<UpstreamServer>>>,
    routes: Vec<Rc<ServerRoute>>,
}

/// The servers at one moment, as one call may choose among them.
struct ServerOptions {
    routes: Rc<ServerRoutes>,
    /// The server to take if it takes requests and has room.
    first: Option<usize>,
    /// Servers not to take.
    excluded: SmallVec<[usize; 4]>,
}

impl ServerOptions {
    fn servers(&self) -> &[Arc<UpstreamServer>] {
        &self.routes.servers
    }

    fn preference(&self, offset: usize) -> Preference<'_> {
        Preference {
            first: self.first,
            excluded: &self.excluded,
            offset,
        }
    }
}

/// The server that a call was given.
pub(super) struct ChosenServer {
    pub(super) server: Arc<UpstreamServer>,
    pub(super) route: Rc<ServerRoute>,
    /// Counts the call there, if it runs for long: from now on, so that many at a time are spread.
    pub(super) long_running: Option<LongRunningAt>,
}

impl ChosenServer {
    /// The server answered so long after it was sent the call.
    pub(super) fn answered(self, call: &Call, reply: &mut Reply, took: Duration) {
        let Some(held) = self.long_running else {
            let status = reply.status().as_u16();
            return self.server.answered(status, took, hash_of_user(call));
        };
        self.server.load().outcomes().answered_otherwise();
        if is_long_running(call.kind, reply) {
            reply
                .body_mut()
                .hold(Box::new(LongRunningReply::new(held, call.kind)));
        }
    }
}

/// Counts a call among those whose answers are awaited at a server, until the result is dropped. Not one whose client still sends, and not one
/// that runs for long: there a pod that is asked through the server may be what its response waits for.
pub(super) fn await_answer<'s>(
    server: &'s UpstreamServer,
    call: &Call,
    body: &ClientBody,
) -> Option<AwaitedAnswer<'s>> {
    let is_awaited = !call.kind.is_long_running() && body.has_arrived();
    is_awaited.then(|| server.load().outcomes().await_answer(hash_of_user(call)))
}

impl ServerChoice {
    pub(super) fn new(
        servers: Arc<UpstreamServers>,
        settings: Arc<UpstreamSettings>,
        clock: Clock,
    ) -> Self {
        let none = ServerRoutes {
            servers: Arc::default(),
            routes: Vec::new(),
        };
        Self {
            servers,
            settings,
            clock,
            current: RefCell::new(Rc::new(none)),
            turn: Cell::new(0),
        }
    }

    /// All servers.
    pub(super) fn servers(&self) -> &Arc<UpstreamServers> {
        &self.servers
    }

    /// The servers at this moment. Connections to those that stay are kept.
    fn current(&self) -> Rc<ServerRoutes> {
        let list = self.servers.list();
        let mut current = self.current.borrow_mut();
        if !Arc::ptr_eq(&current.servers, &list) {
            let route = |server: &Arc<UpstreamServer>| {
                let mut known = current.servers.iter();
                let known = known.position(|known| Arc::ptr_eq(known, server));
                known.map_or_else(
                    || {
                        let settings = self.settings.of_server(server.endpoint());
                        Rc::new(ServerRoute::new(Arc::new(settings), &self.clock))
                    },
                    |known| Rc::clone(&current.routes[known]),
                )
            };
            let routes = list.iter().map(route).collect();
            let servers = Arc::clone(&list);
            self.settings.connection_limit.set_servers(servers.len());
            *current = Rc::new(ServerRoutes { servers, routes });
        }
        Rc::clone(&current)
    }

    /// A call was not answered by the server that was chosen for it, and is no longer there.
    pub(super) fn note_failure(&self, chosen: &ChosenServer, call: &Call, blame: Blame) {
        match blame {
            Blame::NotConnected => self.servers.not_connected(&chosen.server),
            // What pods answer through a server says nothing about the server.
            Blame::NotAnswered if call.kind != RequestKind::LongRunning => {
                self.servers.failed(&chosen.server, hash_of_user(call));
            }
            // As an error: it takes those of several users to say something about the server.
            Blame::Reset if call.kind != RequestKind::LongRunning => {
                chosen.server.reset(hash_of_user(call));
            }
            // Its response is no longer awaited.
            Blame::Ejected => drop(call.context.awaited.take()),
            Blame::NotAnswered | Blame::Reset | Blame::Nobody => {}
        }
        drop(call.context.server_charge.borrow_mut().take());
        forget_preference(&call.peer);
    }

    /// Charges a server that is not among `excluded`, waiting until one has room; `None` if there is none. The charge is kept in
    /// the call's context. A call that waits sees the servers that are found meanwhile.
    pub(super) async fn choose(
        &self,
        call: &Call,
        excluded: &[Arc<UpstreamServer>],
    ) -> Option<ChosenServer> {
        let demand = demand(call);
        let offset = self.turn.replace(self.turn.get().wrapping_add(1));
        let mut options = self.options(call, demand, excluded);
        let mut choice = choose(options.servers(), demand, options.preference(offset));
        if let Choice::Full = choice {
            let mut waiting = WaitingForServer::new(Arc::clone(self.servers.places()));
            choice = poll_fn(|cx| {
                if !Arc::ptr_eq(&options.routes.servers, &self.servers.list()) {
                    options = self.options(call, demand, excluded);
                }
                waiting.poll(cx, options.servers(), demand, options.preference(offset))
            })
            .await;
        }
        let Choice::Charged(charge) = choice else {
            return None;
        };
        Some(options.routes.chosen(charge, call))
    }

    /// The servers of this moment, as a call may choose among them.
    fn options(
        &self,
        call: &Call,
        demand: ServerDemand,
        excluded: &[Arc<UpstreamServer>],
    ) -> ServerOptions {
        let routes = self.current();
        let excluded = excluded.iter().filter_map(|server| routes.index_of(server));
        let excluded: SmallVec<[usize; 4]> = excluded.collect();
        ServerOptions {
            first: self.preferred(&routes, call, demand, &excluded),
            excluded,
            routes,
        }
    }

    /// The server that the client's connection prefers; a new one if it has none, or if that takes no requests any longer.
    fn preferred(
        &self,
        routes: &ServerRoutes,
        call: &Call,
        demand: ServerDemand,
        excluded: &[usize],
    ) -> Option<usize> {
        // Watches are spread by their number alone.
        if self.servers.spread() == Spread::Request || demand.is_long_running {
            return None;
        }
        let mut kept = call.peer.server.borrow_mut();
        let affinity = kept
            .as_ref()
            .and_then(|kept| kept.downcast_ref::<Affinity>());
        let usable = |server: &Arc<UpstreamServer>| {
            let index = routes.index_of(server);
            index.filter(|index| server.load().capacity() > 0 && !excluded.contains(index))
        };
        let stays = affinity.filter(|affinity| !affinity.is_to_move());
        if let Some(index) = stays.and_then(|affinity| usable(affinity.server())) {
            return Some(index);
        }
        let open =
            routes.servers.iter().enumerate().filter(|(index, server)| {
                server.load().capacity() > 0 && !excluded.contains(index)
            });
        let (index, server) = open.min_by(|(_, a), (_, b)| fewer_connections(a, b))?;
        *kept = Some(Box::new(Affinity::to(server)) as Box<dyn Any>);
        Some(index)
    }
}

/// Compares servers by their connections for the seats that they have.
fn fewer_connections(a: &UpstreamServer, b: &UpstreamServer) -> std::cmp::Ordering {
    let share = |one: &UpstreamServer, other: &UpstreamServer| {
        u64::from(one.load().connections()) * u64::from(other.load().capacity())
    };
    share(a, b).cmp(&share(b, a))
}

/// What a call asks of a server.
fn demand(call: &Call) -> ServerDemand {
    let seats = call.context.seats.get();
    ServerDemand {
        width: seats.width,
        is_limited: seats.is_limited,
        is_long_running: call.kind.is_long_running(),
    }
}

impl ServerRoutes {
    /// Which of them a server is, if it is one.
    fn index_of(&self, server: &Arc<UpstreamServer>) -> Option<usize> {
        self.servers.iter().position(|one| Arc::ptr_eq(one, server))
    }

    fn chosen(&self, charge: ServerCharge<UpstreamServer>, call: &Call) -> ChosenServer {
        let server = Arc::clone(charge.server());
        // It was chosen from this list.
        let index = self.index_of(&server).unwrap_or_default();
        let route = Rc::clone(&self.routes[index]);
        *call.context.server_charge.borrow_mut() = Some(Box::new(charge));
        call.context.trace.set_upstream(&route.name);
        ChosenServer {
            long_running: call
                .kind
                .is_long_running()
                .then(|| LongRunningAt::new(&server)),
            server,
            route,
        }
    }
}

/// Counts a watch, or another request that runs for long, at its server until its reply ends; and ends a watch that is to move
/// to another server.
pub(super) struct LongRunningReply {
    held: LongRunningAt,
    is_watch: bool,
}

impl LongRunningReply {
    pub(super) fn new(held: LongRunningAt, kind: RequestKind) -> Self {
        Self {
            held,
            is_watch: kind == RequestKind::Watch,
        }
    }
}

impl ReplyGuard for LongRunningReply {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_watch {
            self.held.poll_move(cx)
        } else {
            Poll::Pending
        }
    }

    fn end(self: Box<Self>, _how: BodyEnd) {}
}

/// The connection of `peer` no longer prefers a server: the next request chooses anew.
fn forget_preference(peer: &Peer) {
    peer.server.borrow_mut().take();
}

/// Whether a reply lasts for long: an error to a watch does not, and its body is for others to hold.
fn is_long_running(kind: RequestKind, reply: &Reply) -> bool {
    kind != RequestKind::Watch
        || (reply.status() == StatusCode::OK && reply.body().size_hint().exact().is_none())
}

/// A hash of the user's name, to tell users apart.
fn hash_of_user(call: &Call) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.digest.user.name.hash(&mut hasher);
    hasher.finish()
}
