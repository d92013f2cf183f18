//! Subscriptions: one for each name that somebody here waits for.

use std::collections::BTreeMap;

use crate::arrows::{self, Arrow};
use crate::name::{Channel, Name};

#[rustfmt::skip]
pub(crate) const ARROWS: &[Arrow] = &[
    ("off",     "first waiter", "asked"),   // SUBSCRIBE goes out (the host opens the link if there is none)
    ("asked",   "confirmed",    "active"),  // messages come; whoever waits tries once more
    ("asked",   "refused",      "refused"), // waiting goes by time
    ("asked",   "link up",      "asked"),   // asked for again
    ("asked",   "link down",    "asked"),
    ("active",  "link down",    "asked"),
    ("refused", "link down",    "asked"),
    ("asked",   "last waiter",  "off"),     // UNSUBSCRIBE goes out
    ("active",  "last waiter",  "off"),
    ("refused", "last waiter",  "off"),
    ("asked",   "last waiter",  "leaving"), // the same, with an answer still to come
    ("leaving", "first waiter", "asked"),
    ("leaving", "answered",     "off"),
    ("leaving", "link down",    "off"),
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Off,
    Asked,
    Active,
    Refused,
    /// Nobody waits any more, but answers are on their way.
    Leaving,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Asked => "asked",
            Self::Active => "active",
            Self::Refused => "refused",
            Self::Leaving => "leaving",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Channels {
    subscriptions: BTreeMap<Channel, Subscription>,
    link_up: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Subscription {
    name: Name,
    /// Answers still to come. Only the last one counts: an earlier one may stand in front of an
    /// UNSUBSCRIBE that is on its way.
    awaited: u32,
    state: State,
}

impl Subscription {
    fn arrow(&mut self, why: &'static str, to: State) {
        arrows::take(ARROWS, self.state.name(), why, to.name());
        self.state = to;
    }
}

impl Channels {
    pub(crate) const fn new() -> Self {
        Self { subscriptions: BTreeMap::new(), link_up: false }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }

    /// Somebody waits for `name`: the channel to subscribe to, unless that is under way.
    pub(crate) fn want(&mut self, name: &Name) -> Option<Channel> {
        let channel = name.channel();
        let known = self.subscriptions.entry(channel.clone()).or_insert_with(|| Subscription {
            name: name.clone(),
            awaited: 0,
            state: State::Off,
        });
        match known.state {
            State::Off | State::Leaving => known.arrow("first waiter", State::Asked),
            State::Asked | State::Active | State::Refused => return None,
        }
        // Without a link the request only opens it: `link_up` then asks for all that is wanted.
        known.awaited += u32::from(self.link_up);
        Some(channel)
    }

    /// Nobody waits any more: the channel to unsubscribe from.
    pub(crate) fn unwant(&mut self, name: &Name) -> Option<Channel> {
        let channel = name.channel();
        let known = self.subscriptions.get_mut(&channel)?;
        match known.state {
            State::Asked if known.awaited > 0 => known.arrow("last waiter", State::Leaving),
            State::Asked | State::Active | State::Refused => {
                known.arrow("last waiter", State::Off);
                self.subscriptions.remove(&channel);
            }
            State::Off | State::Leaving => return None,
        }
        Some(channel)
    }

    /// The server confirmed: the name whose messages come from now on.
    pub(crate) fn confirmed(&mut self, channel: &Channel) -> Option<Name> {
        self.answered(channel, "confirmed", State::Active)
    }

    /// The server refused: the name that no messages come for.
    pub(crate) fn refused(&mut self, channel: &Channel) -> Option<Name> {
        self.answered(channel, "refused", State::Refused)
    }

    fn answered(&mut self, channel: &Channel, why: &'static str, to: State) -> Option<Name> {
        let known = self.subscriptions.get_mut(channel)?;
        known.awaited = known.awaited.saturating_sub(1);
        if known.awaited > 0 {
            return None;
        }
        match known.state {
            State::Asked => {
                known.arrow(why, to);
                Some(known.name.clone())
            }
            State::Leaving => {
                known.arrow("answered", State::Off);
                self.subscriptions.remove(channel);
                None
            }
            State::Off | State::Active | State::Refused => None,
        }
    }

    /// The link came up: all there is to subscribe to.
    pub(crate) fn link_up(&mut self) -> Vec<Channel> {
        // A host that did not say that the old link went down says so now.
        if self.link_up {
            self.link_down();
        }
        self.link_up = true;
        for known in self.subscriptions.values_mut() {
            known.arrow("link up", State::Asked);
            known.awaited = 1;
        }
        self.subscriptions.keys().cloned().collect()
    }

    pub(crate) fn link_down(&mut self) {
        self.link_up = false;
        self.subscriptions.retain(|_, known| {
            let to = if known.state == State::Leaving { State::Off } else { State::Asked };
            known.arrow("link down", to);
            known.awaited = 0;
            to == State::Asked
        });
    }

    /// Whether waiting may begin: messages come, or never will.
    pub(crate) fn is_settled(&self, name: &Name) -> bool {
        matches!(self.state_of(&name.channel()), State::Active | State::Refused)
    }

    /// Whether messages come.
    pub(crate) fn is_active(&self, name: &Name) -> bool {
        self.state_of(&name.channel()) == State::Active
    }

    fn state_of(&self, channel: &Channel) -> State {
        self.subscriptions.get(channel).map_or(State::Off, |known| known.state)
    }

    /// The name that a message is about, if anybody waits for it.
    pub(crate) fn name_of(&self, channel: &Channel) -> Option<Name> {
        self.subscriptions.get(channel).filter(|known| known.state != State::Leaving).map(|known| known.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_confirmation_counts() {
        let name = Name::new("n").unwrap();
        let mut channels = Channels::new();
        let channel = channels.want(&name).unwrap();
        assert_eq!(channels.link_up(), std::slice::from_ref(&channel));
        assert_eq!(channels.unwant(&name), Some(channel.clone()));
        assert_eq!(channels.want(&name), Some(channel.clone()));
        assert_eq!(channels.confirmed(&channel), None, "this one stands before the UNSUBSCRIBE");
        assert!(!channels.is_settled(&name));
        assert_eq!(channels.confirmed(&channel), Some(name.clone()));
        assert!(channels.is_settled(&name));
        channels.link_down();
        assert!(!channels.is_settled(&name));
    }

    #[test]
    fn nothing_is_kept_of_a_channel_nobody_wants() {
        let name = Name::new("n").unwrap();
        let mut channels = Channels::new();
        let channel = channels.want(&name).unwrap();
        channels.link_up();
        channels.unwant(&name);
        assert_eq!(channels.confirmed(&channel), None);
        assert_eq!(channels, {
            let mut empty = Channels::new();
            empty.link_up();
            empty
        });
    }
}
