//! The lines that drive the proxy.
//!
//! ```text
//! pass                          everything normal again: rules, shots, holds, listening     (also: pass on 3)
//! stall up|down|both            bytes are kept; `resume` delivers them
//! resume
//! delay up|down MS              every frame later by this much; 0 ends it
//! trickle up|down BYTES         so many bytes a second; 0 ends it
//! cut up|down BYTES             close both sides after so many more bytes
//! cut replies N                 close both sides after N more replies were delivered
//! swallow N reset|silent        the next N replies vanish; then a RST, or never a byte more
//! lose TEXT reset|silent [N]    the reply of the next N requests that contain TEXT vanishes likewise
//! drop TEXT reset|silent [N]    the next N requests that contain TEXT are not delivered
//! mute TEXT [N]                 the next N pushes that contain TEXT vanish (a lost message)
//! hold TEXT [N]                 the next N requests that contain TEXT, and what follows them, wait for `release`;
//!                               they are delivered then even if their client is gone
//! release                       answers how many were held
//! reset                         RST to both sides
//! halfclose up|down             FIN to the server, or to the client
//! refuse | silence | accept     new connections: refused, accepted and never answered, normal
//! target HOST:PORT              where new connections go
//! count WHAT                    connections, open, held, up, down (bytes), replies, or a command name such as EVALSHA
//! state                         all of it as one line of JSON
//! stop
//! ```
//!
//! Each may end with `on all` (the default: connections that are and will be), `on next`, or `on N` (the Nth accepted).
//! TEXT has no spaces. Shots (cut, swallow, lose, drop, mute, hold) fire once; with `on all` the first to fit takes it.

/// From the client to the server.
pub(super) const UP: usize = 0;
/// From the server to the client.
pub(super) const DOWN: usize = 1;

/// Which connections an order is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    Next,
    Nth(u64),
}

/// What becomes of a connection after bytes were taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Reset,
    Silent,
}

/// Something that happens once, or a number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shot {
    CutBytes(usize),
    CutReplies,
    Swallow(After),
    Lose(String, After),
    Drop(String, After),
    Mute(String),
    Hold(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Pass,
    Stall([bool; 2]),
    Resume,
    Delay(usize, u64),
    Trickle(usize, u64),
    Shoot(Shot, u64),
    Release,
    Reset,
    HalfClose(usize),
    Refuse,
    Silence,
    Accept,
    Target(String),
    Count(String),
    State,
    Stop,
}

/// Reads one line.
pub(super) fn parse(line: &str) -> Result<(Order, Scope), String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let scope = match words.as_slice() {
        [.., "on", "all"] => Scope::All,
        [.., "on", "next"] => Scope::Next,
        [.., "on", nth] => Scope::Nth(number(nth)?),
        rest => return Ok((order(rest)?, Scope::All)),
    };
    words.truncate(words.len() - 2);
    Ok((order(&words)?, scope))
}

fn order(words: &[&str]) -> Result<Order, String> {
    Ok(match *words {
        ["pass"] => Order::Pass,
        ["stall", "both"] => Order::Stall([true, true]),
        ["stall", side] => Order::Stall([direction(side)? == UP, direction(side)? == DOWN]),
        ["resume"] => Order::Resume,
        ["delay", side, ms] => Order::Delay(direction(side)?, number(ms)?),
        ["trickle", side, rate] => Order::Trickle(direction(side)?, number(rate)?),
        ["cut", "replies", n] => Order::Shoot(Shot::CutReplies, number(n)?),
        ["cut", side, n] => Order::Shoot(Shot::CutBytes(direction(side)?), number(n)?),
        ["swallow", n, then] => Order::Shoot(Shot::Swallow(after(then)?), number(n)?),
        ["lose", text, then] => Order::Shoot(Shot::Lose(text.into(), after(then)?), 1),
        ["lose", text, then, n] => Order::Shoot(Shot::Lose(text.into(), after(then)?), number(n)?),
        ["drop", text, then] => Order::Shoot(Shot::Drop(text.into(), after(then)?), 1),
        ["drop", text, then, n] => Order::Shoot(Shot::Drop(text.into(), after(then)?), number(n)?),
        ["mute", text] => Order::Shoot(Shot::Mute(text.into()), 1),
        ["mute", text, n] => Order::Shoot(Shot::Mute(text.into()), number(n)?),
        ["hold", text] => Order::Shoot(Shot::Hold(text.into()), 1),
        ["hold", text, n] => Order::Shoot(Shot::Hold(text.into()), number(n)?),
        ["release"] => Order::Release,
        ["reset"] => Order::Reset,
        ["halfclose", side] => Order::HalfClose(direction(side)?),
        ["refuse"] => Order::Refuse,
        ["silence"] => Order::Silence,
        ["accept"] => Order::Accept,
        ["target", to] => Order::Target(to.into()),
        ["count", what] => Order::Count(what.into()),
        ["state"] => Order::State,
        ["stop"] => Order::Stop,
        _ => return Err(format!("unknown order: {}", words.join(" "))),
    })
}

fn direction(word: &str) -> Result<usize, String> {
    match word {
        "up" => Ok(UP),
        "down" => Ok(DOWN),
        _ => Err(format!("up or down, not {word}")),
    }
}

fn after(word: &str) -> Result<After, String> {
    match word {
        "reset" => Ok(After::Reset),
        "silent" => Ok(After::Silent),
        _ => Err(format!("reset or silent, not {word}")),
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("a number, not {word}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        assert_eq!(parse("stall both on 3"), Ok((Order::Stall([true, true]), Scope::Nth(3))));
        assert_eq!(parse("stall up"), Ok((Order::Stall([true, false]), Scope::All)));
        let lose = Order::Shoot(Shot::Lose("EVALSHA".into(), After::Silent), 1);
        assert_eq!(parse("lose EVALSHA silent on next"), Ok((lose, Scope::Next)));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for line in ["", "stal", "stall sideways", "delay up soon", "swallow 1", "pass on", "pass on tuesday"] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
