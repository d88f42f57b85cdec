//! Changes the process to another user, who owns the sockets.
//!
//! `USER` or `USER:GROUP`, names or numbers → the process's ids; the permitted capabilities stay.
//!
//! Source: setresuid(2), setgroups(2), capabilities(7) (`SECBIT_KEEP_CAPS`).

use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{Group, User};
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, fstat, open};
use rustix::thread::{
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use weft_config::places::Listen;
use weft_config::resolve::Config;

use crate::serve::dir::{SocketError, make_dir_of};

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// There is no such user or group.
    #[error("expected an existing user, or USER:GROUP; found {0:?}")]
    Unknown(String),
    #[error("{call} {name:?} (needs root, or CAP_SETUID and CAP_SETGID)")]
    Call { call: &'static str, name: String, source: io::Error },
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Unix sockets that the switch of `config` will make.
pub(super) fn sockets(config: &Config) -> Vec<PathBuf> {
    let cci = config.fabric.as_ref().and_then(|fabric| fabric.cci.as_ref());
    let cci = cci.and_then(|cci| match &cci.place {
        Listen::Unix(path) => Some(path.clone()),
        Listen::Tcp(_) => None,
    });
    cci.into_iter().chain([config.run.socket.clone()]).collect()
}

/// Ids of `name`: `USER` with the user's own group, or `USER:GROUP`.
fn ids(name: &str) -> Option<(Uid, Gid)> {
    let (user, group) = name.split_once(':').map_or((name, None), |(u, g)| (u, Some(g)));
    // The largest id means "leave it unchanged" to setresuid(2): it names no user.
    let number = |text: &str| text.parse::<u32>().ok().filter(|&id| id != u32::MAX);
    let known = match number(user) {
        Some(id) => User::from_uid(id.into()).ok().flatten(),
        // A number needs no entry in the user database; a name that is not in it is refused.
        None => Some(User::from_name(user).ok().flatten()?),
    };
    let uid = known.as_ref().map_or_else(|| number(user), |user| Some(user.uid.as_raw()))?;
    let gid = match group {
        Some(group) => {
            number(group).or_else(|| Some(Group::from_name(group).ok().flatten()?.gid.as_raw()))?
        }
        None => known.map_or(uid, |user| user.gid.as_raw()),
    };
    Some((Uid::from_raw(uid), Gid::from_raw(gid)))
}

/// Changes to user `name`, who gets the directories of `sockets`. The permitted capabilities stay.
pub(super) fn become_user(name: &str, sockets: &[PathBuf]) -> Result<(), UserError> {
    let (uid, gid) = ids(name).ok_or_else(|| UserError::Unknown(name.to_owned()))?;
    let failed = |call| {
        let name = name.to_owned();
        move |error: rustix::io::Errno| UserError::Call { call, name, source: error.into() }
    };
    // An ordinary user may name itself, without the capabilities that a change takes.
    if rustix::process::geteuid() == uid && rustix::process::getegid() == gid {
        return Ok(());
    }
    // As long as this is the owner: the new user could not give the directories to itself.
    for socket in sockets {
        let dir = make_dir_of(socket)?;
        give(&dir, uid, gid).map_err(failed("give the socket's directory to"))?;
    }
    // Without it the kernel clears the permitted capabilities when the last id of root is gone.
    set_keep_capabilities(true).map_err(failed("keep capabilities as"))?;
    // Groups before the user: afterwards the right to change them is gone from the effective set.
    set_thread_groups(&[]).map_err(failed("leave the groups to be"))?;
    set_thread_res_gid(gid, gid, gid).map_err(failed("take the group of"))?;
    set_thread_res_uid(uid, uid, uid).map_err(failed("become"))?;
    set_keep_capabilities(false).map_err(failed("keep capabilities as"))
}

/// Gives a directory to a user if it is ours alone. Any other is left as it is, and refused when the socket is made
/// there.
fn give(dir: &Path, uid: Uid, gid: Gid) -> rustix::io::Result<()> {
    // By descriptor and without following links: the checks and the change are of the same directory.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = open(dir, flags, Mode::empty())?;
    let metadata = fstat(&dir)?;
    let is_ours = metadata.st_uid == rustix::process::geteuid().as_raw();
    let others = Mode::RWXG | Mode::RWXO;
    if is_ours && !Mode::from_raw_mode(metadata.st_mode).intersects(others) {
        fchown(&dir, Some(uid), Some(gid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_or_numbered() {
        #[rustfmt::skip] // columns: text, ids
        let cases = [
            ("root", Some((0, 0))), ("0", Some((0, 0))), ("root:0", Some((0, 0))),
            ("root:77", Some((0, 77))), ("54321", Some((54_321, 54_321))), ("54321:0", Some((54_321, 0))),
            ("no such user", None), ("root:no such group", None), ("", None), ("root:", None),
            ("4294967295", None), ("-1", None),
        ];
        for (text, want) in cases {
            let got = ids(text).map(|(uid, gid)| (uid.as_raw(), gid.as_raw()));
            assert_eq!(got, want, "{text:?}");
        }
    }
}
