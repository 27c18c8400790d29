//! Whom `epp bench` sends requests to, as the flags say it, and how they are reached.

use anyhow::bail;

use super::{Args, As, PATIENCE};
use crate::bench::client::{Client, Mode};
use crate::bench::dial::{Dial, Speaks};
use crate::bench::served::Servers;
use crate::bench::target::Target;

/// How requests go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Pickers are asked, and nobody generates.
    Picks,
    /// Pickers are asked, and engines generate.
    Dispatch,
    /// To whoever answers over HTTP.
    Http,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// The scheme of an address, and what is left of it.
fn scheme(address: &str) -> (Option<Scheme>, &str) {
    let schemes = [("http://", Scheme::Http), ("https://", Scheme::Https)];
    let found = schemes.into_iter().find_map(|(begin, scheme)| Some((Some(scheme), address.strip_prefix(begin)?)));
    found.map_or((None, address), |(scheme, rest)| (scheme, rest.trim_end_matches('/')))
}

impl Args {
    /// How requests go out; all who take turns are reached alike, so that figures can be compared.
    pub fn over(&self) -> anyhow::Result<Over> {
        let each = self.target.iter().chain(&self.versus).map(|address| match scheme(address) {
            (None, _) if self.dispatch => Over::Dispatch,
            (None, _) => Over::Picks,
            (Some(_), _) => Over::Http,
        });
        let each: Vec<Over> = each.chain(self.baseline.then_some(Over::Picks)).collect();
        let first = each.first().copied().unwrap_or(Over::Picks);
        if each.iter().any(|over| *over != first) {
            bail!(
                "expected pickers, or gateways, that are all reached alike, found some over HTTP or dispatched and some that are only asked"
            );
        }
        if first == Over::Http && (self.dispatch || self.mode != As::Direct) {
            bail!("--dispatch and --mode are for pickers, found a gateway over HTTP");
        }
        if first == Over::Dispatch && self.mode != As::Direct {
            bail!("expected --mode direct with --dispatch, found another one");
        }
        Ok(first)
    }

    /// Reaches one who takes turns.
    pub async fn reach(&self, name: &str, address: &str, over: Over) -> anyhow::Result<Target> {
        let ca = self.ca.as_deref();
        // The server of constants is one of ours, in the clear.
        let secure = (self.tls || ca.is_some()) && name != "baseline";
        let dial = if secure { Dial::tls(ca, Speaks::Grpc)? } else { Dial::Clear };
        let n = self.connections as usize;
        let servers = |dial| Servers::new(dial, self.endpoint_header.clone());
        let picker = || Client::connect(address, &dial, self.mode(), n, PATIENCE);
        Ok(match over {
            Over::Picks => Target::Picker(picker().await?),
            Over::Dispatch => Target::Dispatch(picker().await?, servers(Dial::Clear)),
            Over::Http => {
                let (secure, address) = match scheme(address) {
                    (Some(Scheme::Https), rest) => (true, rest),
                    (Some(Scheme::Http) | None, rest) => (false, rest),
                };
                let dial = if secure { Dial::tls(ca, Speaks::Http1)? } else { Dial::Clear };
                let servers = servers(dial);
                servers.connect(address).await?;
                Target::Server(servers, address.to_owned())
            }
        })
    }

    fn mode(&self) -> Mode {
        match self.mode {
            As::Direct => Mode::Direct,
            As::Lean => Mode::Lean,
            As::Duplex => Mode::Duplex,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    #[test]
    fn all_who_take_turns_are_reached_alike() {
        let over = |flags: &[&str]| parse(flags).unwrap().over().map_err(|e| e.to_string());
        assert_eq!(over(&["--target=a:1", "--versus=b:1", "--baseline"]), Ok(Over::Picks));
        assert_eq!(over(&["--target=a:1", "--versus=b:1", "--dispatch"]), Ok(Over::Dispatch));
        assert_eq!(over(&["--target=http://a:1", "--versus=https://b:1"]), Ok(Over::Http));
        for (flags, says) in [
            (&["--target=http://a:1", "--versus=b:1"][..], "reached alike"),
            (&["--target=http://a:1", "--baseline"], "reached alike"),
            (&["--target=a:1", "--dispatch", "--baseline"], "reached alike"),
            (&["--target=http://a:1", "--dispatch"], "found a gateway over HTTP"),
            (&["--target=http://a:1", "--mode=lean"], "found a gateway over HTTP"),
            (&["--target=a:1", "--dispatch", "--mode=lean"], "--mode direct"),
        ] {
            let why = over(flags).unwrap_err();
            assert!(why.contains(says), "{flags:?}: {why}");
        }
        assert_eq!(scheme("https://a:1/"), (Some(Scheme::Https), "a:1"));
    }
}
