//! What plays the engine, the road to it and the keeper: no more of them than decides who is woken.

pub(crate) mod road {
    use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use loom::sync::{Mutex, MutexGuard};

    use crate::kernel::sync::lock;
    use crate::seats::{Readers, Seats, Tally};

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Flow {
        Done,
        Empty,
        #[expect(dead_code, reason = "a read that ends by a signal is played by the park behind it")]
        Interrupted,
    }

    pub(crate) struct Road {
        pub(crate) seats: Seats,
        reader: Mutex<()>,
        pub(super) posted: AtomicU64,
        pub(super) answered: AtomicU64,
    }

    impl Road {
        pub(super) fn new() -> Self {
            Self {
                seats: Seats::new(Readers::Threads),
                reader: Mutex::new(()),
                posted: AtomicU64::new(0),
                answered: AtomicU64::new(0),
            }
        }

        pub(crate) fn tally(&self) -> Tally {
            let answered = self.answered.load(SeqCst);
            Tally { answered, posted: self.posted.load(SeqCst) }
        }

        pub(crate) fn reader(&self) -> MutexGuard<'_, ()> {
            lock(&self.reader)
        }

        pub(crate) fn try_reader(&self) -> Option<MutexGuard<'_, ()>> {
            self.reader.try_lock().ok()
        }

        #[expect(clippy::unused_self, reason = "as the real one")]
        pub(crate) fn is_clogged(&self) -> bool {
            false
        }
    }
}

pub(crate) mod shared {
    use std::sync::Arc;

    use bandog_core::io::{Outcome, Wire};
    use loom::sync::atomic::Ordering::SeqCst;
    use loom::sync::{Mutex, MutexGuard};

    use super::road::{Flow, Road};
    use crate::kernel::{Call, KERNEL, sync::lock};
    use crate::parker::Parker;
    use crate::seat::Seat;
    use crate::seats::Next;
    use crate::sys::Socket;

    /// So many calls in flight are written at once.
    const AT_ONCE: usize = 1;

    /// What the server does with a wish.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Fate {
        /// The reply is the outcome.
        Answered,
        /// The reply is that another holds it: the keeper tries again, and has the outcome.
        Busy,
        /// The connection ends instead.
        Breaks,
    }

    /// How it begins.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Start {
        /// There is a connection.
        Up,
        /// It comes.
        Late,
        /// It comes after a first attempt that the server refuses.
        Refused,
    }

    pub(crate) struct Shared {
        pub(crate) generation: u64,
        pub(crate) roads: [Road; 1],
        engine: Mutex<Engine>,
    }

    #[derive(Default)]
    struct Engine {
        wishes: Vec<Wish>,
        /// What the keeper tries again.
        retries: Vec<usize>,
        /// The next attempt to connect fails.
        refused: bool,
    }

    struct Wish {
        fate: Fate,
        /// Gone once it was told, or gave up.
        seat: Option<Arc<Seat>>,
        /// Its call has no reply.
        due: bool,
        /// Nobody ever waited for it.
        background: bool,
    }

    impl Shared {
        pub(crate) const THREADS: Wire = Wire(0);

        pub(crate) fn new(start: Start) -> Self {
            let engine = Engine { refused: start == Start::Refused, ..Engine::default() };
            let shared = Self { generation: 0, roads: [Road::new()], engine: Mutex::new(engine) };
            KERNEL.lock().broken = true;
            if start == Start::Up {
                shared.came_up();
            }
            shared
        }

        fn road(&self) -> &Road {
            &self.roads[0]
        }

        /// States a wish.
        pub(crate) fn wish(&self, fate: Fate, seat: Arc<Seat>) -> usize {
            let wish = self.post(&mut lock(&self.engine), fate, Some(seat));
            self.send(false);
            wish
        }

        /// Under the engine's mutex.
        fn post(&self, engine: &mut Engine, fate: Fate, seat: Option<Arc<Seat>>) -> usize {
            let background = seat.is_none();
            engine.wishes.push(Wish { fate, seat, due: true, background });
            let wish = engine.wishes.len() - 1;
            self.road().posted.fetch_add(1, SeqCst);
            KERNEL.lock().outbox.push_back(Call { wish, breaks: fate == Fate::Breaks });
            wish
        }

        pub(crate) fn flush(&self, road: &Road, eager: bool) {
            self.send(eager);
            self.pass(road, road.seats.attend(|| road.tally()));
        }

        fn send(&self, eager: bool) {
            let mut state = KERNEL.lock();
            KERNEL.write(&mut state, (!eager).then_some(AT_ONCE));
            let down = state.broken;
            drop(state);
            if down {
                KERNEL.ring();
            }
        }

        pub(crate) fn pump(&self, road: &Road, reader: MutexGuard<'_, ()>, patient: Option<&Arc<Socket>>) -> Flow {
            let mut state = KERNEL.lock();
            if patient.is_some_and(|socket| socket.0 != state.epoch) {
                return Flow::Done;
            }
            let replies: Vec<_> = state.replies.drain(..).collect();
            let broken = state.broken && replies.is_empty();
            KERNEL.write(&mut state, None);
            drop(state);
            if replies.is_empty() && !broken {
                // As if it had waited.
                return Flow::Empty;
            }
            let mut engine = lock(&self.engine);
            let mut wakes = Vec::new();
            let mut calls = false;
            for call in replies {
                calls |= self.answer(&mut engine, call.wish, &mut wakes);
            }
            if broken && self.road().seats.is_up() {
                self.lose(&mut engine, &mut wakes);
            }
            drop(engine);
            drop(reader);
            if calls {
                self.flush(road, false);
            }
            Parker::unpark_all(wakes.iter().map(|parker| &**parker));
            if broken {
                KERNEL.ring();
            }
            Flow::Done
        }

        /// Says whether it led to a call of nobody's.
        fn answer(&self, engine: &mut Engine, wish: usize, wakes: &mut Vec<Arc<Parker>>) -> bool {
            self.road().answered.fetch_add(1, SeqCst);
            engine.wishes[wish].due = false;
            let Wish { fate, background, .. } = engine.wishes[wish];
            match (fate, engine.wishes[wish].seat.take()) {
                (Fate::Answered, Some(seat)) => {
                    seat.put(Outcome::Extended);
                    wakes.push(seat.parker.clone());
                }
                (Fate::Busy, Some(seat)) => {
                    engine.wishes[wish].seat = Some(seat);
                    engine.retries.push(wish);
                    KERNEL.ring();
                }
                // Granted to somebody who has gone: it is given back.
                (Fate::Answered, None) if !background => {
                    self.post(engine, Fate::Answered, None);
                    return true;
                }
                _ => {}
            }
            false
        }

        /// The connection is gone, or none could be made: so is all that is due.
        fn lose(&self, engine: &mut Engine, wakes: &mut Vec<Arc<Parker>>) {
            self.road().seats.went_down();
            KERNEL.lock().outbox.clear();
            for wish in engine.wishes.iter_mut().filter(|wish| wish.due) {
                wish.due = false;
                self.road().answered.fetch_add(1, SeqCst);
                if let Some(seat) = wish.seat.take() {
                    seat.put(Outcome::Busy);
                    wakes.push(seat.parker.clone());
                }
            }
        }

        /// Its caller has gone.
        pub(crate) fn cancel(&self, wish: usize) {
            lock(&self.engine).wishes[wish].seat = None;
        }

        pub(crate) fn pass(&self, _road: &Road, next: Next) {
            match next {
                Next::Nobody => {}
                Next::Caller(parker) => parker.unpark(),
                Next::Keeper => KERNEL.ring(),
                Next::Loop => unreachable!("no loop here"),
            }
        }

        /// The keeper tries to connect.
        fn connect(&self) {
            let mut engine = lock(&self.engine);
            if !engine.refused {
                drop(engine);
                return self.came_up();
            }
            if !self.road().tally().is_due() {
                drop(engine);
                return KERNEL.wait(false);
            }
            engine.refused = false;
            let mut wakes = Vec::new();
            self.lose(&mut engine, &mut wakes);
            drop(engine);
            Parker::unpark_all(wakes.iter().map(|parker| &**parker));
        }

        fn came_up(&self) {
            let road = self.road();
            let engine = lock(&self.engine);
            let mut state = KERNEL.lock();
            state.broken = false;
            state.epoch += 1;
            let socket = Arc::new(Socket(state.epoch));
            drop(state);
            let next = road.seats.came_up(socket, || road.tally());
            drop(engine);
            self.flush(road, true);
            self.pass(road, next);
        }

        /// The keeper's thread, and the server's, until the callers have gone and nothing is due.
        pub(crate) fn keep(&self, callers: usize) {
            let road = self.road();
            loop {
                KERNEL.serve();
                self.retry();
                let leads = road.seats.keeper_leads(|| road.tally()).is_some();
                let state = KERNEL.lock();
                let over = state.gone == callers;
                let readable = state.readable();
                drop(state);
                if leads && readable {
                    match road.try_reader() {
                        Some(reader) => drop(self.pump(road, reader, None)),
                        None => loom::thread::yield_now(),
                    }
                } else if !road.seats.is_up() {
                    self.connect();
                } else if over && !road.tally().is_due() {
                    return;
                } else {
                    KERNEL.wait(leads);
                }
            }
        }

        fn retry(&self) {
            let mut engine = lock(&self.engine);
            let retries = std::mem::take(&mut engine.retries);
            let seats: Vec<_> = retries.into_iter().filter_map(|wish| engine.wishes[wish].seat.take()).collect();
            seats.iter().for_each(|seat| seat.put(Outcome::Extended));
            drop(engine);
            seats.iter().for_each(|seat| seat.parker.unpark());
        }
    }
}
