//! A model server: does with an `Ask` what the scripts do, at an instant that is a number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::io::{Fence, Value};
use crate::name::{Channel, Name};
use crate::scripts::{Ask, Request, Script};
use crate::time::Time;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Lock {
        fields: BTreeMap<String, u32>,
        expires: Option<Time>,
    },
    /// A value that is no lock.
    Foreign,
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) keys: BTreeMap<Name, Kept>,
    /// Scripts whose digest is unknown.
    pub(super) forgotten: BTreeSet<Script>,
    /// What it answers instead of executing, for keys of this name; a batch is refused as a whole.
    pub(super) refuses: Option<(Name, String)>,
    /// What a renewal answers for keys of this name.
    pub(super) spoilt: Option<(Name, String)>,
    /// `CLIENT KILL` is not permitted.
    pub(super) keeps_connections: bool,
    /// Connections that were killed.
    pub(super) killed: BTreeSet<u64>,
    /// Its clock is ahead of the world's by so much.
    pub(super) ahead: i64,
    pub(super) subscribers: BTreeSet<(Channel, usize)>,
    /// Locks that are free because somebody released them, and said so.
    pub(super) released: BTreeSet<Name>,
    /// So many others hear every message and want nothing.
    pub(super) listeners: i64,
    /// Messages that are on their way.
    pub(super) published: VecDeque<(usize, Channel)>,
    /// What it executed, in order.
    pub(super) log: Vec<Ask>,
}

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Server {
    fn expire(&mut self, now: Time) {
        self.keys.retain(
            |_, kept| !matches!(kept, Kept::Lock { expires: Some(at), fields } if *at <= now || fields.is_empty()),
        );
    }

    /// The fields of a lock as they are now.
    pub(super) fn fields(&mut self, now: Time, name: &Name) -> Vec<(String, u32)> {
        self.expire(now);
        match self.keys.get(name) {
            Some(Kept::Lock { fields, .. }) => fields.iter().map(|(owner, count)| (owner.clone(), *count)).collect(),
            Some(Kept::Foreign) | None => Vec::new(),
        }
    }

    pub(super) fn expires(&mut self, now: Time, name: &Name) -> Option<Time> {
        self.expire(now);
        match self.keys.get(name) {
            Some(Kept::Lock { expires, .. }) => *expires,
            Some(Kept::Foreign) | None => None,
        }
    }

    /// Whether this may still be executed, and its connections to kill are killed.
    pub(super) fn kill(&mut self, fences: &[Fence]) -> bool {
        if !self.keeps_connections {
            self.killed.extend(fences.iter().map(|fence| fence.id));
        }
        !self.keeps_connections || fences.is_empty()
    }

    pub(super) fn execute(&mut self, now: Time, request: &Request) -> Result<Value, String> {
        self.expire(now);
        let ask = &request.ask;
        if !request.source && self.forgotten.contains(&ask.script()) {
            return Err("NOSCRIPT No matching script. Please use EVAL.".into());
        }
        self.forgotten.remove(&ask.script());
        if let Some((name, text)) = &self.refuses
            && names(ask).contains(&name)
        {
            return Err(text.clone());
        }
        self.log.push(ask.clone());
        match ask {
            Ask::Acquire { name, owner, lease, count, fresh, heal } => {
                let fresh_expiry = Some(now + *lease);
                match self.keys.get_mut(name) {
                    Some(Kept::Foreign) => Err(WRONG.into()),
                    None if !fresh => Ok(Value::Int(0)),
                    None => {
                        self.released.remove(name);
                        let fields = BTreeMap::from([(owner.to_string(), *count)]);
                        self.keys.insert(name.clone(), Kept::Lock { fields, expires: fresh_expiry });
                        Ok(Value::Int(i64::from(*count)))
                    }
                    Some(Kept::Lock { fields, expires }) => {
                        if let Some(have) = fields.get_mut(&owner.to_string()) {
                            *expires = (*expires).max(fresh_expiry);
                            *have = (*have).max(*count);
                            return Ok(Value::Int(i64::from(*have)));
                        }
                        match *expires {
                            _ if !fresh => Ok(Value::Int(0)),
                            Some(at) => Ok(Value::List(vec![Value::Int(at.since(now).0 as i64)])),
                            None => {
                                *expires = Some(now + *heal);
                                Ok(Value::List(vec![Value::Int(heal.0 as i64), Value::Int(1)]))
                            }
                        }
                    }
                }
            }
            Ask::Release { name, owner, lease, count } => {
                let (fields, expires) = match self.keys.get_mut(name) {
                    Some(Kept::Foreign) => return Err(WRONG.into()),
                    Some(Kept::Lock { fields, expires }) => (fields, expires),
                    None => return Ok(Value::Int(0)),
                };
                let Some(have) = fields.get_mut(&owner.to_string()) else { return Ok(Value::Int(0)) };
                if *count > 0 {
                    *have = (*have).min(*count);
                    *expires = (*expires).max(Some(now + *lease));
                    return Ok(Value::Int(i64::from(*have)));
                }
                fields.remove(&owner.to_string());
                if fields.is_empty() {
                    self.keys.remove(name);
                    return Ok(Value::List(vec![Value::Int(self.publish(name))]));
                }
                Ok(Value::List(vec![Value::Int(0)]))
            }
            Ask::Renew(renewals) => {
                assert!(renewals.len() <= 100, "a batch of {}", renewals.len());
                let (mut list, mut count) = (Vec::new(), 0);
                for (place, renewal) in renewals.iter().enumerate() {
                    let verdict = match self.keys.get_mut(&renewal.name) {
                        Some(_) if self.spoilt.as_ref().is_some_and(|(name, _)| *name == renewal.name) => {
                            Value::Text(self.spoilt.as_ref().unwrap().1.clone().into())
                        }
                        Some(Kept::Foreign) => Value::Text(WRONG.into()),
                        Some(Kept::Lock { fields, expires }) if fields.contains_key(&renewal.owner.to_string()) => {
                            *expires = expires.map(|at| at.max(now + renewal.lease)).or(Some(now + renewal.lease));
                            Value::Int(1)
                        }
                        Some(Kept::Lock { .. }) | None => Value::Int(0),
                    };
                    if verdict == Value::Int(1) {
                        count += 1;
                    } else {
                        list.extend([Value::Int(place as i64 + 1), verdict]);
                    }
                }
                list.push(Value::Int(count));
                let us = (now.0 as i64 + self.ahead + 1_764_000_000_000) * 1000;
                list.push(Value::Text((us / 1_000_000).to_string().into()));
                list.push(Value::Text((us % 1_000_000).to_string().into()));
                Ok(Value::List(list))
            }
            Ask::Force { name, owners } => match self.keys.get_mut(name) {
                Some(Kept::Foreign) => Err(WRONG.into()),
                None if owners.is_empty() => Ok(Value::List(Vec::new())),
                None => Ok(Value::Int(0)),
                Some(Kept::Lock { fields, .. }) if owners.is_empty() => {
                    Ok(Value::List(fields.keys().map(|owner| Value::Text(owner.clone().into())).collect()))
                }
                Some(Kept::Lock { fields, .. }) => {
                    let before = fields.len();
                    fields.retain(|owner, _| !owners.contains(&owner.clone().into_bytes()));
                    let gone = (before - fields.len()) as i64;
                    if fields.is_empty() {
                        self.keys.remove(name);
                        self.publish(name);
                    }
                    Ok(Value::Int(gone))
                }
            },
            Ask::Status { name } => match self.keys.get(name) {
                None => Ok(Value::Int(-2)),
                Some(Kept::Foreign) => Err(WRONG.into()),
                Some(Kept::Lock { expires: None, .. }) => Ok(Value::Int(-1)),
                Some(Kept::Lock { expires: Some(at), .. }) => Ok(Value::Int(at.since(now).0 as i64)),
            },
        }
    }

    fn publish(&mut self, name: &Name) -> i64 {
        let channel = name.channel();
        self.released.insert(name.clone());
        let told: Vec<usize> =
            self.subscribers.iter().filter(|(at, _)| *at == channel).map(|(_, client)| *client).collect();
        self.published.extend(told.iter().map(|client| (*client, channel.clone())));
        told.len() as i64 + self.listeners
    }
}

fn names(ask: &Ask) -> Vec<&Name> {
    match ask {
        Ask::Acquire { name, .. } | Ask::Release { name, .. } | Ask::Force { name, .. } | Ask::Status { name } => {
            vec![name]
        }
        Ask::Renew(renewals) => renewals.iter().map(|renewal| &renewal.name).collect(),
    }
}
