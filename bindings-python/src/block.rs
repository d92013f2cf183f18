//! Calls that block: the round trip happens in the caller's own thread, without the GIL.

use std::cell::Cell;
use std::sync::Arc;

use bandog::Code;
use bandog::host::{self, Mailbox, News, Settled, Signals, Submitted, Wish};
use pyo3::prelude::*;

use crate::errors::{fail, raise};
use crate::home::Home;
use crate::owner;
use crate::poke::Poke;
use crate::shared::Shared;
use crate::wish::Answer;

/// Does it and waits for the answer. `twin` is what to write instead where an event loop runs.
pub(crate) fn call(
    py: Python<'_>,
    client: &Arc<Shared>,
    wish: Wish,
    answer: &Answer,
    twin: &str,
) -> PyResult<Py<PyAny>> {
    refuse_in_loop(py, client, twin)?;
    let result = match owner::gevent_wait_read(py)? {
        Some(wait_read) => cooperate(py, client, wish, &wait_read)?,
        None => park(py, client, wish)?,
    };
    answer.give(py, client, &Home::Thread, result)
}

/// A blocked event loop helps nobody: say so before anything is sent.
pub(crate) fn refuse_in_loop(py: Python<'_>, client: &Shared, twin: &str) -> PyResult<()> {
    if client.allow_blocking_in_loop || owner::running_loop(py)?.is_none() {
        return Ok(());
    }
    let text = format!(
        "this would block the event loop that runs in this thread: write `{twin}`, or connect with \
         allow_blocking_in_loop=True"
    );
    Err(fail(py, Code::BlockingInLoop, text))
}

type Outcome = Result<Settled, bandog::Error>;

fn park(py: Python<'_>, client: &Arc<Shared>, wish: Wish) -> PyResult<Outcome> {
    let mut raised = None;
    let signals = signals(py)?;
    let result = py.detach(|| {
        host::block(&client.driver, wish, signals, &mut || {
            // No interpreter any more: nobody is left to give the answer to.
            Python::try_attach(|py| py.check_signals()).is_none_or(|checked| {
                raised = checked.err();
                raised.is_some()
            })
        })
    });
    let result = result.transpose();
    // A signal that came together with the grant raises at the caller's next step, where the hold has no name yet.
    let raised = raised.map_or_else(|| py.check_signals(), Err);
    match (raised, result) {
        (Ok(()), Some(outcome)) => Ok(outcome),
        (Ok(()), None) => Ok(Err(bandog::Error::new(Code::Closed, "the interpreter is shutting down"))),
        (Err(raised), result) => {
            if let Some(Ok(Settled::Held(handle))) = result {
                host::release_in_background(&client.driver, &handle);
            }
            Err(raised)
        }
    }
}

/// Python handles signals in one thread; the others need not wait for them.
fn signals(py: Python<'_>) -> PyResult<Signals> {
    thread_local! {
        /// With the process it was found in: a thread that forks is the first of the child.
        static FOUND: Cell<Option<(u32, Signals)>> = const { Cell::new(None) };
    }
    let process = std::process::id();
    if let Some((_, signals)) = FOUND.get().filter(|(found_in, _)| *found_in == process) {
        return Ok(signals);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = main.eq(threading.call_method0("get_ident")?)?;
    let signals = if is_main { Signals::Guarded } else { Signals::Open };
    FOUND.set(Some((process, signals)));
    Ok(signals)
}

/// Lets gevent's hub run the other greenlets meanwhile.
fn cooperate(py: Python<'_>, client: &Shared, wish: Wish, wait_read: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let poke = Arc::new(Poke::new()?);
    let mailbox = Mailbox::new({
        let poke = Arc::clone(&poke);
        move || poke.set()
    });
    let ticket = match host::submit(&client.driver, wish, &mailbox, 0) {
        Ok(Submitted::Waiting(ticket)) => ticket,
        Ok(Submitted::Ended(result)) => return Ok(result),
        Err(error) => return Ok(Err(error)),
    };
    loop {
        for mail in mailbox.drain() {
            match mail.result {
                Ok(News::Ended(settled)) => return Ok(Ok(settled)),
                Err(error) => return Ok(Err(error)),
                Ok(News::Granted) => match host::claim(&client.driver, &ticket) {
                    Ok(Some(handle)) => return Ok(Ok(Settled::Held(handle))),
                    Ok(None) => {}
                    Err(error) => return Ok(Err(error)),
                },
            }
        }
        // A kill, a timeout or Ctrl-C of gevent comes out of here.
        if let Err(raised) = wait_read.call1((poke.fd(),)) {
            host::cancel(&client.driver, &ticket);
            return Err(raised);
        }
        poke.clear();
        py.check_signals().inspect_err(|_| host::cancel(&client.driver, &ticket))?;
    }
}

/// Closes the client. Under gevent another thread waits for the server.
pub(crate) fn close(py: Python<'_>, client: &Arc<Shared>) -> PyResult<()> {
    let Some(wait_read) = owner::gevent_wait_read(py)? else {
        client.close(py);
        return Ok(());
    };
    let poke = Arc::new(Poke::new()?);
    client.close_aside({
        let poke = Arc::clone(&poke);
        move || poke.set()
    })?;
    // Killed meanwhile, the greenlet leaves the thread to finish.
    wait_read.call1((poke.fd(),)).map(drop)
}

/// An error of the driver as an exception, for calls that do no I/O.
pub(crate) fn local<T>(py: Python<'_>, result: Result<T, bandog::Error>) -> PyResult<T> {
    result.map_err(|error| raise(py, &error))
}
