//! The roads between the engines and their server: calls, answers, connections, messages.

use std::collections::VecDeque;

use super::world::{CALLER, World};
use crate::io::{Call, CallError, Fence, Link, Output, Push, Value, Wire};
use crate::name::Name;

impl World {
    pub(super) fn drain(&mut self, at: usize) {
        let client = &mut self.clients[at];
        while let Some(output) = client.engine.poll() {
            match output {
                Output::Send(call) => {
                    client.sent.push(call.clone());
                    client.wires.entry(call.wire).or_default().push_back(call);
                }
                Output::Subscribe(channel) if client.messages_up => {
                    client.subscribes.push((channel.clone(), true));
                    client.asked.push_back((channel, true));
                }
                Output::Subscribe(_) => {
                    client.messages_up = true;
                    client.engine.handle_link(self.now, Link::Messages, true);
                }
                Output::Unsubscribe(channel) => {
                    client.subscribes.push((channel.clone(), false));
                    client.asked.push_back((channel, false));
                }
                Output::Sever(wire) => client.severed.push(wire),
                Output::Done(op, outcome) => client.done.push((op, outcome)),
                Output::Event(event) => client.events.push(event),
            }
        }
    }

    pub(super) fn connection(&mut self, at: usize, wire: Wire) -> u64 {
        *self.clients[at].connections.entry(wire).or_insert_with(|| {
            self.connections += 1;
            self.connections
        })
    }

    pub(super) fn in_flight(&self, at: usize, wire: Wire) -> usize {
        self.clients[at].wires.get(&wire).map_or(0, VecDeque::len)
    }

    /// The server's answer to the oldest call on a wire, not delivered yet.
    pub(super) fn execute(&mut self, at: usize, wire: Wire) -> (Call, Result<Value, CallError>) {
        self.connection(at, wire);
        let call = self.clients[at].wires.get_mut(&wire).and_then(VecDeque::pop_front).expect("a call on this wire");
        if !self.server.kill(&call.fences) {
            self.tell(at, |engine, now| engine.handle_unfenced(now, call.id));
        }
        let result = self.server.execute(self.now, &call.request).map_err(CallError::Server);
        (call, result)
    }

    pub(super) fn report(&mut self, at: usize, call: &Call, result: Result<Value, CallError>) {
        self.tell(at, |engine, now| engine.handle_reply(now, call.id, result));
    }

    /// Executes the oldest call on a wire; its answer is on its way.
    pub(super) fn execute_only(&mut self, at: usize, wire: Wire) {
        let answer = self.execute(at, wire);
        self.clients[at].replies.entry(wire).or_default().push_back(answer);
    }

    /// The oldest answer on its way arrives.
    pub(super) fn reply(&mut self, at: usize, wire: Wire) -> bool {
        let Some((call, result)) = self.clients[at].replies.get_mut(&wire).and_then(VecDeque::pop_front) else {
            return false;
        };
        self.report(at, &call, result);
        true
    }

    /// Executes and answers the oldest call on a wire.
    pub(super) fn deliver(&mut self, at: usize, wire: Wire) -> Call {
        while self.reply(at, wire) {}
        let (call, result) = self.execute(at, wire);
        self.report(at, &call, result);
        call
    }

    /// The oldest call on a wire gets this instead of being executed.
    pub(super) fn answer(&mut self, at: usize, wire: Wire, result: Result<Value, CallError>) {
        let call = self.clients[at].wires.get_mut(&wire).and_then(VecDeque::pop_front).expect("a call on this wire");
        self.report(at, &call, result);
    }

    /// The connection of a wire breaks after the server executed so many of its calls. The others are
    /// lost, or lie about and may be executed late.
    pub(super) fn cut(&mut self, at: usize, wire: Wire, executed: usize, late: bool) {
        self.cut_unnamed(at, wire, executed, late, false);
    }

    /// The same; of an unnamed connection the client does not know which one it was.
    pub(super) fn cut_unnamed(&mut self, at: usize, wire: Wire, executed: usize, late: bool, unnamed: bool) {
        let id = self.connection(at, wire);
        let calls = self.clients[at].wires.remove(&wire).unwrap_or_default();
        for (index, call) in calls.iter().enumerate() {
            if index < executed {
                self.server.kill(&call.fences);
                let _ = self.server.execute(self.now, &call.request);
            } else if late {
                self.ghosts.push_back((id, call.clone()));
            }
        }
        self.clients[at].connections.remove(&wire);
        let fence = (!unnamed).then(|| Fence { id, addr: format!("127.0.0.1:{id}") });
        let lost = self.clients[at].replies.remove(&wire).unwrap_or_default();
        for call in lost.iter().map(|(call, _)| call).chain(&calls) {
            self.report(at, call, Err(CallError::Unknown(fence.clone())));
        }
    }

    /// The oldest late call is executed, unless its connection was killed.
    pub(super) fn haunt(&mut self) {
        let Some((id, call)) = self.ghosts.pop_front() else { return };
        if !self.server.killed.contains(&id) {
            let _ = self.server.execute(self.now, &call.request);
        }
    }

    /// The server does the next SUBSCRIBE or UNSUBSCRIBE of a client.
    pub(super) fn subscribe(&mut self, at: usize) -> bool {
        let Some((channel, on)) = self.clients[at].asked.pop_front() else { return false };
        if on {
            self.server.subscribers.insert((channel.clone(), at));
            self.clients[at].inbox.push_back(Push::Subscribed(channel));
        } else {
            self.server.subscribers.remove(&(channel, at));
        }
        true
    }

    /// Everything published so far arrives at the clients' sockets.
    pub(super) fn carry(&mut self) {
        while let Some((client, channel)) = self.server.published.pop_front() {
            self.clients[client].inbox.push_back(Push::Message(channel, b"0".to_vec()));
        }
    }

    pub(super) fn push(&mut self, at: usize) -> bool {
        let Some(push) = self.clients[at].inbox.pop_front() else { return false };
        self.tell(at, |engine, now| engine.handle_push(now, push));
        true
    }

    pub(super) fn message(&mut self, at: usize, of: &Name) {
        self.tell(at, |engine, now| engine.handle_push(now, Push::Message(of.channel(), b"0".to_vec())));
    }

    pub(super) fn link(&mut self, at: usize, link: Link, up: bool) {
        if link == Link::Messages {
            let client = &mut self.clients[at];
            client.messages_up = up;
            client.asked.clear();
            client.inbox.clear();
            self.server.subscribers.retain(|(_, client)| *client != at);
            self.server.published.retain(|(client, _)| *client != at);
        }
        self.tell(at, |engine, now| engine.handle_link(now, link, up));
    }

    /// Everything on its way arrives, until nothing is left.
    pub(super) fn run(&mut self) {
        for _ in 0..10_000 {
            let mut quiet = true;
            for at in 0..self.clients.len() {
                for wire in [Wire::KEEPER, CALLER, Wire(2)] {
                    while self.reply(at, wire) {
                        quiet = false;
                    }
                    while self.in_flight(at, wire) > 0 {
                        self.deliver(at, wire);
                        quiet = false;
                    }
                }
                while self.subscribe(at) {
                    quiet = false;
                }
            }
            self.carry();
            for at in 0..self.clients.len() {
                while self.push(at) {
                    quiet = false;
                }
            }
            if quiet {
                return;
            }
        }
        panic!("the world never comes to rest");
    }
}
