//! What the JS entry point talks to.

use std::rc::Rc;

use bandog::{Code, Error, Name};
use napi::bindgen_prelude::{Object, Unknown, retain_current_module_for_unload_safety};
use napi::{Env, Result};
use napi_derive::napi;

use crate::client::{Client, ClientState};
use crate::convert::{self, ACQUIRE, Asked};
use crate::errors::Fail;
use crate::looped::Loop;
use crate::quick;
use crate::raw;
use crate::uv::Uv;
use crate::wire::Transport;
use crate::words::Words;

/// What ties the addon to one event loop. Made once by the JS entry point.
#[napi]
pub struct Host {
    pub(crate) looped: Rc<Loop>,
}

#[napi]
impl Host {
    /// `words` are the JS functions that Rust calls; `asked` is the transport that the environment asks for;
    /// `stranger`: this is a runtime whose loop is not libuv's, whatever its symbols say.
    #[napi(constructor)]
    pub fn new(env: Env, words: Object, asked: Option<String>, stranger: bool) -> Result<Self> {
        // Node unloads an addon with the last worker that used it, while a thread of ours may still be on its
        // way out.
        retain_current_module_for_unload_safety();
        let words = Words::new(env, &words)?;
        let uv = if stranger { None } else { Uv::find(env) };
        let transport = match (asked.as_deref(), uv) {
            (None | Some("uv"), Some(uv)) => Transport::Uv(uv),
            (None | Some("socket"), _) => Transport::Socket,
            (Some("uv"), None) => return Err(words.thrown(refuse("the event loop of this runtime is not libuv's"))),
            (Some(_), _) => return Err(words.thrown(refuse("it takes uv or socket"))),
        };
        let looped = Loop::new(env, words, transport)?;
        let last = Rc::clone(&looped);
        if let Transport::Uv(uv) = looped.transport() {
            let uv = Rc::clone(uv);
            raw::at_the_end(env, move |hook| {
                last.shut();
                uv.leave(hook);
            })?;
        } else {
            env.add_env_cleanup_hook((), move |()| last.shut())?;
        }
        Ok(Self { looped })
    }

    /// What carries the bytes of every wire: `uv` or `socket`.
    #[napi(getter)]
    pub fn transport(&self) -> &'static str {
        self.looped.transport().name()
    }

    /// The calls that everything else waits for: see quick.rs.
    #[napi(getter)]
    pub fn quick(&self) -> Result<Object<'static>> {
        quick::functions(self.looped.env)
    }

    /// A client. No I/O, no thread until it is used.
    #[napi]
    pub fn connect(&self, url: Unknown, options: Unknown) -> Result<Client> {
        let make = || {
            let (options, patience) = convert::options(url, options)?;
            let driver = bandog::Client::new(options).map_err(convert::watchdog)?;
            Ok(ClientState::new(driver, patience, &self.looped))
        };
        match make() {
            Ok(state) => Ok(Client { state }),
            Err(fail) => Err(self.looped.words.thrown(fail)),
        }
    }

    /// Refuses options of `locked` before there is a lock to use them with.
    #[napi]
    pub fn check_options(&self, options: Unknown) -> Result<()> {
        let checked = Asked::read(&options, "locked", ACQUIRE).map(drop);
        checked.map_err(|fail| self.looped.words.thrown(fail))
    }

    /// Refuses a name of a lock before there is a client to make it.
    #[napi]
    pub fn check_name(&self, name: Unknown) -> Result<()> {
        let checked = convert::name(name).and_then(|name| Ok(Name::new(&name).map(drop)?));
        checked.map_err(|fail| self.looped.words.thrown(fail))
    }

    /// The end of a turn in which calls were put off.
    #[napi]
    pub fn flush(&self) {
        self.looped.flush();
    }

    /// The process or worker exits.
    #[napi]
    pub fn leave(&self) {
        self.looped.leave();
    }
}

fn refuse(why: &str) -> Fail {
    Error::new(Code::InvalidOption, format!("the environment variable BANDOG_TRANSPORT cannot be followed: {why}"))
        .into()
}
