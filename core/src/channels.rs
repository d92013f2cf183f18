//! Subscriptions: one for each name that somebody here waits for.
//!
//! ```text
//! off    --first waiter-->  asked    SUBSCRIBE goes out (the host opens the link if there is none)
//! asked  --confirmed-->     active   messages come; whoever waits tries once more
//! asked  --refused-->       refused  waiting goes by time
//! active --link down-->     asked    asked for again when the link is up
//! any    --last waiter-->   off      UNSUBSCRIBE goes out
//! ```

use std::collections::BTreeMap;

use crate::name::{Channel, Name};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Channels {
    subscriptions: BTreeMap<Channel, Subscription>,
    link_up: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Subscription {
    name: Name,
    wanted: bool,
    /// Confirmations still to come. Only the last one counts: an earlier one may stand in front of an
    /// UNSUBSCRIBE that is on its way.
    awaited: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Asked,
    Active,
    Refused,
}

impl Channels {
    pub(crate) const fn new() -> Self {
        Self { subscriptions: BTreeMap::new(), link_up: false }
    }

    /// Somebody waits for `name`: the channel to subscribe to, unless that is under way.
    pub(crate) fn want(&mut self, name: &Name) -> Option<Channel> {
        let channel = name.channel();
        let known = self.subscriptions.entry(channel.clone()).or_insert_with(|| Subscription {
            name: name.clone(),
            wanted: false,
            awaited: 0,
            state: State::Asked,
        });
        if known.wanted {
            return None;
        }
        known.wanted = true;
        known.state = State::Asked;
        // Without a link the request only opens it: `link_up` then asks for all that is wanted.
        known.awaited += u32::from(self.link_up);
        Some(channel)
    }

    /// Nobody waits any more: the channel to unsubscribe from.
    pub(crate) fn unwant(&mut self, name: &Name) -> Option<Channel> {
        let channel = name.channel();
        let known = self.subscriptions.get_mut(&channel).filter(|known| known.wanted)?;
        known.wanted = false;
        if known.awaited == 0 {
            self.subscriptions.remove(&channel);
        }
        Some(channel)
    }

    /// The server confirmed: the name whose messages come from now on.
    pub(crate) fn confirmed(&mut self, channel: &Channel) -> Option<Name> {
        let known = self.subscriptions.get_mut(channel)?;
        known.awaited = known.awaited.saturating_sub(1);
        if known.awaited > 0 {
            return None;
        }
        if !known.wanted {
            self.subscriptions.remove(channel);
            return None;
        }
        known.state = State::Active;
        Some(known.name.clone())
    }

    pub(crate) fn refused(&mut self, channel: &Channel) -> Option<Name> {
        let known = self.subscriptions.get_mut(channel)?;
        known.awaited = known.awaited.saturating_sub(1);
        known.state = State::Refused;
        if known.wanted {
            return Some(known.name.clone());
        }
        self.subscriptions.remove(channel);
        None
    }

    /// The link came up: all there is to subscribe to.
    pub(crate) fn link_up(&mut self) -> Vec<Channel> {
        self.link_up = true;
        for known in self.subscriptions.values_mut() {
            (known.state, known.awaited) = (State::Asked, 1);
        }
        self.subscriptions.keys().cloned().collect()
    }

    pub(crate) fn link_down(&mut self) {
        self.link_up = false;
        self.subscriptions.retain(|_, known| known.wanted);
        for known in self.subscriptions.values_mut() {
            (known.state, known.awaited) = (State::Asked, 0);
        }
    }

    /// Whether waiting may begin: messages come, or never will.
    pub(crate) fn is_settled(&self, name: &Name) -> bool {
        self.subscriptions.get(&name.channel()).is_some_and(|known| known.state != State::Asked)
    }

    /// Whether messages come.
    pub(crate) fn is_active(&self, name: &Name) -> bool {
        self.subscriptions.get(&name.channel()).is_some_and(|known| known.state == State::Active)
    }

    pub(crate) fn name_of(&self, channel: &Channel) -> Option<Name> {
        self.subscriptions.get(channel).filter(|known| known.wanted).map(|known| known.name.clone())
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
