//! What a server's refusal means, whatever its version wraps around it.

use crate::error::Code;

/// The stable code of an error reply, where it has one, and its text without the script's whereabouts.
/// `None`: a state of the server that may pass, or a fault of ours; its first word tells which.
///
/// Errors inside scripts look different from version to version. 6.2 puts `ERR Error running script (call to
/// f_<digest>): @user_script:12: @user_script: 12: -` in front; 7.0 puts ` script: <digest>, on @user_script:12.`
/// behind; and a missing permission is `NOPERM` only outside scripts.
#[must_use]
pub fn refusal(text: &str) -> (Option<Code>, &str) {
    let text = unwrap(text);
    let code = match text.split(' ').next().unwrap_or_default() {
        "WRONGTYPE" => Some(Code::WrongType),
        "OOM" => Some(Code::OutOfMemory),
        "READONLY" => Some(Code::ReadOnly),
        "NOPERM" | "NOAUTH" | "WRONGPASS" => Some(Code::PermissionDenied),
        _ => {
            let text = text.strip_prefix("ERR ").unwrap_or(text);
            let denied = ["The user executing the script can't ", "ACL failure in script"];
            denied.iter().any(|start| text.starts_with(start)).then_some(Code::PermissionDenied)
        }
    };
    (code, text)
}

fn unwrap(mut text: &str) -> &str {
    if let Some(wrapped) = text.strip_prefix("ERR Error running script (call to f_") {
        text = wrapped.split_once("): ").map_or(text, |(_, inner)| inner);
    }
    while let Some(place) = text.strip_prefix("@user_script:") {
        let rest = place.trim_start_matches(' ').trim_start_matches(|digit: char| digit.is_ascii_digit());
        let Some(inner) = rest.strip_prefix(": ") else { break };
        text = inner.strip_prefix('-').unwrap_or(inner);
    }
    match text.rfind(" script: ") {
        Some(at) if text[at..].contains(", on @user_script:") => &text[..at],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h1_refusals_of_every_version_have_the_same_code() {
        let digest = "cbf34942109e1b14db4c50337ff1b93b5a6bf477";
        let table = [
            (Code::OutOfMemory, "OOM command not allowed when used memory > 'maxmemory'."),
            (Code::ReadOnly, "READONLY You can't write against a read only replica."),
            (Code::WrongType, "WRONGTYPE Operation against a key holding the wrong kind of value"),
            (Code::PermissionDenied, "NOPERM this user has no permissions to access one of the keys used as arguments"),
            (Code::PermissionDenied, "The user executing the script can't run this command or subcommand"),
            (Code::PermissionDenied, "ERR The user executing the script can't publish to the channel mentioned"),
            (Code::PermissionDenied, "ERR ACL failure in script: User w has no permissions to run the 'time' command"),
        ];
        for (code, plain) in table {
            for wrapped in [
                plain.to_owned(),
                format!("{plain} script: {digest}, on @user_script:12."),
                format!("@user_script: 12: {plain}"),
                format!("@user_script: 12: -{plain}"),
                format!("ERR Error running script (call to f_{digest}): @user_script:12: {plain}"),
                format!("ERR Error running script (call to f_{digest}): @user_script:12: @user_script: 12: -{plain}"),
            ] {
                assert_eq!(refusal(&wrapped), (Some(code), plain), "{wrapped}");
            }
        }
    }

    #[test]
    fn other_errors_are_left_as_they_are() {
        for text in [
            "",
            "ERR",
            "LOADING Redis is loading the dataset in memory",
            "NOREPLICAS Not enough good replicas to write.",
            "NOSCRIPT No matching script. Please use EVAL.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "OOMX",
            "ERR Error running script (call to f_",
            "@user_script:",
            "@user_script: 12",
            "@user_script:\u{1f512}: x",
            "ERR a script: of another kind",
        ] {
            assert_eq!(refusal(text), (None, text));
        }
    }
}
