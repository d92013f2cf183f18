//! The engine: wish, report, drain (design 2).
//!
//! A host states a wish (`acquire`, `release` ..), reports what happened (`handle_*`), and after every one
//! of these calls [`Engine::poll`]s until there is nothing more to do, all under one mutex. Between two
//! calls it sleeps until [`Engine::poll_timeout`].
//!
//! What one wish does is told in the folder or file of its machine: `acquire`, `release`, `errand`; what
//! becomes of a hold in `hold`, `watchdog` and `loss`; who waits for whom in `waiters`.

use std::collections::{BTreeMap, VecDeque};

use crate::acquire::Acquire;
use crate::calls::{CallRecord, Purpose};
use crate::channels::Channels;
use crate::config::Config;
use crate::errand::Errand;
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::hold::Phase;
use crate::holds::Holds;
use crate::io::{CallError, CallId, HoldId, HoldView, LevelId, Link, OpId, Outcome, Output, Push, Value, Wire};
use crate::loss::lost_text;
use crate::name::Name;
use crate::owner::{ClientId, HoldNumber, LocalOwner, WireOwner};
use crate::release::Release;
use crate::slab::Slab;
use crate::time::{Millis, Time};
use crate::waiters::{Audience, Queue};
use crate::watchdog::ServerClock;
use crate::wheel::Wheel;

/// Everything about locks is decided here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) client: ClientId,
    pub(crate) wheel: Wheel<Timer>,
    pub(crate) holds: Holds,
    pub(crate) ops: Slab<OpId, Op>,
    pub(crate) calls: Slab<CallId, CallRecord>,
    pub(crate) queues: BTreeMap<Name, Queue>,
    /// Queues that nobody is in, by the number of the timer that ends their stay.
    pub(crate) resting: BTreeMap<u32, Name>,
    pub(crate) next_rest: u32,
    pub(crate) audience: Audience,
    pub(crate) channels: Channels,
    pub(crate) server_clock: ServerClock,
    /// Holds whose renewal is due, collected while a time-out is handled.
    pub(crate) due: Vec<HoldId>,
    /// The keeper's link for requests is known to be down since then.
    pub(crate) down_since: Option<Time>,
    /// Some server was there: a request went out to it.
    pub(crate) reached: bool,
    pub(crate) closed: bool,
    /// What was lost by closing, and when: told to whoever asks, though it is released.
    pub(crate) cut_short: BTreeMap<HoldId, Time>,
    pub(crate) listening: bool,
    next_number: u64,
    pub(crate) out: VecDeque<Output>,
}

/// What a timer is about; slab indices, for whoever ends takes its timers with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Timer {
    /// A request got no reply in time.
    Call(u32),
    /// A hold is to be renewed.
    Renew(u32),
    /// A hold becomes doubtful, is over, or is to be tidied up.
    Hold(u32),
    /// The next step of a wish: a retry, the end of a park, a grant that nobody claims.
    Step(u32),
    /// The time that a wish was given is over.
    End(u32),
    /// A wait has become long enough to be worth a word.
    Notice(u32),
    /// A queue that nobody is in has stayed for long enough.
    Rest(u32),
}

/// A wish under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Op {
    Acquire(Box<Acquire>),
    Release(Box<Release>),
    Errand(Box<Errand>),
}

impl Engine {
    /// An engine with an id of its own. `seed` is where its hold numbers start: any value will do, but
    /// not the same for two engines of one id.
    #[must_use]
    pub fn new(config: Config, client: ClientId, seed: u64) -> Self {
        Self {
            config,
            client,
            wheel: Wheel::default(),
            holds: Holds::new(),
            ops: Slab::new(),
            calls: Slab::new(),
            queues: BTreeMap::new(),
            resting: BTreeMap::new(),
            next_rest: 0,
            audience: Audience::default(),
            channels: Channels::new(),
            server_clock: ServerClock::default(),
            due: Vec::new(),
            down_since: None,
            reached: false,
            closed: false,
            cut_short: BTreeMap::new(),
            listening: false,
            next_number: seed % (1 << 31),
            out: VecDeque::new(),
        }
    }

    // ----- wishes that are not a machine of their own -----

    /// The caller of a wish is gone: no `Done` follows. An acquire is undone whatever became of it; a
    /// release goes on in the background.
    pub fn cancel(&mut self, now: Time, op: OpId) {
        match self.ops.get_mut(op) {
            Some(Op::Acquire(_)) => self.end_acquire(now, op, None),
            Some(Op::Release(release)) => release.caller = false,
            Some(Op::Errand(_)) => self.end_errand(op, None),
            None => {}
        }
    }

    /// The thread, task or scope ended. Its holds live on while a handle of theirs does (L9).
    pub fn owner_gone(&mut self, now: Time, owner: LocalOwner) {
        let ids: Vec<_> = self.holds.of_owner(owner).map(|(id, _)| id).collect();
        for id in ids {
            if let Some(hold) = self.holds.get_mut(id) {
                hold.owner_alive = false;
            }
            self.abandon_if_nobody_is_left(now, id);
        }
    }

    /// No handle of this level is reachable any more. The hold lives on while its owner does (L9).
    pub fn handle_dropped(&mut self, now: Time, hold: HoldId, level: LevelId) {
        if let Some(record) = self.holds.get_mut(hold) {
            record.levels.iter_mut().filter(|at| at.id == level).for_each(|at| at.handle = false);
            self.abandon_if_nobody_is_left(now, hold);
        }
    }

    /// Ends every wish with `closed` and releases every hold over `wire`. All is done when
    /// [`Engine::is_idle`]; nothing new is taken on.
    pub fn close(&mut self, now: Time, wire: Wire) {
        self.closed = true;
        let ops: Vec<OpId> = self.ops.keys().collect();
        for op in ops {
            let failed = Some(Outcome::Failed(closed()));
            match self.ops.get(op) {
                Some(Op::Acquire(_)) => self.end_acquire(now, op, failed),
                Some(Op::Errand(_)) => self.end_errand(op, failed),
                Some(Op::Release(_)) => self.end_echo(now, op),
                None => {}
            }
        }
        self.close_queues(now);
        for id in self.holds.ids() {
            self.release_whole(now, id, wire);
        }
    }

    /// Whether events other than losses and warnings are wanted. At first they are not.
    pub fn set_listening(&mut self, listening: bool) {
        self.listening = listening;
    }

    // ----- reports -----

    /// What became of a call: its value, or why it has none. Each call is reported once.
    pub fn handle_reply(&mut self, now: Time, call: CallId, result: Result<Value, CallError>) {
        let Some(record) = self.calls.remove(call) else { return };
        if let Some(timer) = record.timer {
            self.wheel.cancel(timer);
        }
        self.reached |= !matches!(result, Err(CallError::NotSent(_)));
        let answer = self.note_road(&record, result);
        match record.purpose {
            Purpose::Renew(ref batch) => self.on_renewed(now, &record, batch, answer),
            Purpose::Wish(op) => match self.ops.get(op) {
                Some(Op::Acquire(_)) => self.on_tried(now, op, &record, answer),
                Some(Op::Release(_)) => self.on_released(now, op, &record, answer),
                Some(Op::Errand(_)) => self.on_errand(now, op, &record, answer),
                None => {}
            },
        }
        if let Some(hold) = record.hold {
            self.end_of_road(now, hold);
        }
    }

    /// The server would not kill a connection that a call was to fence off. Comes before the call's reply.
    pub fn handle_unfenced(&mut self, _now: Time, call: CallId) {
        if let Some(record) = self.calls.get_mut(call) {
            record.refused = true;
        }
    }

    /// Something came down the connection of subscriptions.
    pub fn handle_push(&mut self, now: Time, push: Push) {
        let confirmed = match push {
            Push::Message(channel, _) => {
                // A message is a hint: what it says is not read (X5).
                if let Some(name) = self.channels.name_of(&channel) {
                    self.on_message(now, &name);
                }
                None
            }
            Push::Subscribed(channel) => self.channels.confirmed(&channel),
            Push::Refused(channel, text) => {
                if let Some(name) = self.channels.refused(&channel) {
                    let text =
                        format!("the server refused the subscription ({text}): waiting by time instead of by message");
                    self.event(Event::Warning { name: Some(name.clone()), text });
                    self.settle_unsubscribed(now, &name);
                }
                None
            }
        };
        if let Some(name) = confirmed {
            self.on_subscribed(now, &name);
        }
    }

    /// One of the keeper's connections came up or went down.
    pub fn handle_link(&mut self, now: Time, link: Link, up: bool) {
        match (link, up) {
            (Link::Messages, true) => {
                for channel in self.channels.link_up() {
                    self.out.push_back(Output::Subscribe(channel));
                }
            }
            (Link::Messages, false) => self.channels.link_down(),
            (Link::Requests, up) => {
                let was_down = self.down_since.is_some();
                self.down_since = if up { None } else { Some(self.down_since.unwrap_or(now)) };
                if up == was_down {
                    self.event(Event::Link { up });
                    self.waiters_and_link(now, up);
                }
                if up && was_down {
                    self.renew_all(now);
                }
            }
        }
    }

    /// `now` is at or past [`Engine::poll_timeout`]. Calling it early or often does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(timer) = self.wheel.pop(now) {
            match timer {
                Timer::Call(index) => self.on_silent(now, self.calls.key_at(index)),
                Timer::Renew(index) => self.on_renewal_due(self.holds.id_at(index)),
                Timer::Hold(index) => self.on_hold_timer(now, self.holds.id_at(index)),
                Timer::Step(index) => self.on_step(now, self.ops.key_at(index)),
                Timer::End(index) => self.on_end(now, self.ops.key_at(index)),
                Timer::Notice(index) => self.on_notice(now, self.ops.key_at(index)),
                Timer::Rest(number) => self.on_rested(now, number),
            }
        }
        self.renew_due(now);
    }

    // ----- what to do now -----

    /// The next thing the host must do, until there is nothing more.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When to call [`Engine::handle_timeout`] at the latest; `None` while nothing is timed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next_at()
    }

    // ----- getters -----

    /// What a hold looks like at this instant; `None` once it is released.
    #[must_use]
    pub fn view(&self, now: Time, hold: HoldId) -> Option<HoldView> {
        if let Some(&deadline) = self.cut_short.get(&hold) {
            let lost = Some(LossReason::Closed);
            return Some(HoldView { valid: false, lost, count: 0, remaining: Millis::ZERO, deadline });
        }
        self.holds.get(hold).filter(|hold| hold.phase != Phase::Released).map(|hold| hold.view(now))
    }

    /// Refuses unless the hold is valid at this very instant.
    ///
    /// # Errors
    /// `lock_lost` when it was lost, `not_owner` when it was released. The latter names no lock and no owner,
    /// as with every wish about a hold that is forgotten: its host knows both ([`Error::not_held`]).
    pub fn check(&self, now: Time, hold: HoldId) -> Result<(), Error> {
        match self.holds.get(hold) {
            Some(hold) if hold.is_valid(now) => Ok(()),
            Some(hold) if hold.phase != Phase::Released => {
                Err(self.lost_error(&hold.name, hold.number, hold.why_lost(now)))
            }
            _ if self.cut_short.contains_key(&hold) => Err(Error::new(Code::LockLost, lost_text(LossReason::Closed))),
            _ => Err(released()),
        }
    }

    /// How many levels the hold has that this owner carries; 0 when it holds nothing valid.
    #[must_use]
    pub fn count(&self, now: Time, name: &Name, owner: LocalOwner) -> u32 {
        let carried = self.holds.carried(name.as_str(), owner).and_then(|id| self.holds.get(id));
        carried.filter(|hold| hold.is_valid(now)).map_or(0, |hold| hold.levels.len() as u32)
    }

    /// Whether nothing is under way: no call without a reply, no wish, no clean-up but the late echoes of
    /// releases whose old connection could not be killed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls.len() == 0
            && self.ops.keys().all(|op| matches!(self.ops.get(op), Some(Op::Release(release)) if release.is_echo()))
    }

    /// The first half of every owner this engine writes.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        self.client
    }

    /// What it was told at its start.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    // ----- what the machines share -----

    pub(crate) fn draw_number(&mut self) -> HoldNumber {
        self.next_number += 1;
        HoldNumber(self.next_number)
    }

    pub(crate) fn wire_owner(&self, number: HoldNumber) -> WireOwner {
        WireOwner { client: self.client, number }
    }

    fn on_step(&mut self, now: Time, op: OpId) {
        match self.ops.get(op) {
            Some(Op::Acquire(_)) => self.on_acquire_step(now, op),
            Some(Op::Release(_)) => self.on_release_step(now, op),
            Some(Op::Errand(_)) => self.on_errand_step(now, op),
            None => {}
        }
    }

    fn on_end(&mut self, now: Time, op: OpId) {
        match self.ops.get(op) {
            Some(Op::Acquire(_)) => self.on_acquire_end(now, op),
            Some(Op::Release(_)) => self.on_release_end(now, op),
            Some(Op::Errand(_)) => self.on_errand_end(now, op),
            None => {}
        }
    }

    pub(crate) fn output(&mut self, output: Output) {
        self.out.push_back(output);
    }

    /// A wish that ends the moment it is made.
    pub(crate) fn at_once(&mut self, outcome: Outcome) -> OpId {
        let op = self.ops.skip();
        self.out.push_back(Output::Done(op, outcome));
        op
    }

    /// A wish that is refused the moment it is made.
    pub(crate) fn refuse(&mut self, error: Error) -> OpId {
        self.at_once(Outcome::Failed(error))
    }

    pub(crate) fn event(&mut self, event: Event) {
        if self.listening || matches!(event, Event::Lost { .. } | Event::Warning { .. }) {
            self.out.push_back(Output::Event(event));
        }
    }
}

/// Without the names, for the hold is forgotten.
pub(crate) fn released() -> Error {
    Error::new(Code::NotOwner, "this hold was released already: release it once, acquire the lock anew to go on")
}

/// What is said to whoever uses a client that was closed.
#[must_use]
pub fn closed() -> Error {
    Error::new(Code::Closed, "the client was closed: make a new one")
}
