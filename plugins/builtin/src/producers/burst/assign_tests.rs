//! Tests of the placing of a burst's members.

use proptest::prelude::*;

use super::*;

const ALL: usize = usize::MAX;

fn names(n: usize) -> Vec<EndpointName> {
    (1..=n).map(|i| EndpointName { namespace: "default".into(), name: format!("pod{i}") }).collect()
}

fn replicas(names: &[EndpointName]) -> Vec<Replica<'_>> {
    let replica = |(i, name)| Replica { id: EndpointId::new(i as u32, 1), running: 0.0, name };
    names.iter().enumerate().map(replica).collect()
}

/// A prompt of these blocks, so many times.
type Prompts<'a> = (usize, &'a [u64]);

/// The pod of every member, prompt by prompt; 0: none.
fn settled(batch: &[Prompts<'_>], pods: usize, k: usize, m: usize, by_tokens: bool) -> Vec<Vec<usize>> {
    let mut plan = Plan::new(Rules { most_per_replica: k, least_shared: m, by_tokens });
    let names = names(pods);
    let waiting: Vec<GroupId> = batch.iter().flat_map(|(n, keys)| vec![keys; *n]).map(|keys| plan.join(keys)).collect();
    let mut places = plan.settle(&waiting, &replicas(&names)).into_iter().map(|id| id.map_or(0, |id| id.slot() + 1));
    batch.iter().map(|(n, _)| places.by_ref().take(*n).collect()).collect()
}

#[test]
fn a_whole_batch_is_placed_by_the_rules() {
    let (abc, abd, xye, xyf): (&[u64], &[u64], &[u64], &[u64]) = (&[1, 2, 3], &[1, 2, 4], &[7, 8, 5], &[7, 8, 6]);
    let family: [Prompts<'_>; 4] = [(2, abc), (2, abd), (2, xye), (2, xyf)];
    for (batch, pods, k, m, expected) in [
        (&[(8, abc)][..], 4, ALL, 0, &[&[1, 1, 1, 1, 1, 1, 1, 1][..]][..]),
        (&[(8, abc)], 4, 2, 0, &[&[1, 1, 2, 2, 3, 3, 4, 4]]),
        (&[(8, abc)], 4, 4, 0, &[&[1, 1, 1, 1, 2, 2, 2, 2]]),
        (&[(1, abc)], 4, ALL, 0, &[&[0]]),
        (&[(2, abc), (2, &[9, 10, 11])], 4, ALL, 0, &[&[1, 1], &[2, 2]]),
        (&family, 2, ALL, 2, &[&[1, 1], &[1, 1], &[2, 2], &[2, 2]]),
        (&[(2, abc), (2, abd), (2, &[1, 2, 5]), (2, &[1, 2, 6])], 4, ALL, 2, &[&[1, 1], &[2, 2], &[3, 3], &[4, 4]]),
        (&[(2, abc), (1, &[1, 2, 8]), (2, xye), (1, &[7, 8, 9])], 2, ALL, 2, &[&[1, 1], &[1], &[2, 2], &[2]]),
        (&[(2, abc), (1, &[5, 6, 7])], 2, ALL, 2, &[&[1, 1], &[0]]),
        (&[(1, abc), (1, abd), (1, &[1, 2, 5]), (1, &[1, 2, 6])], 2, ALL, 2, &[&[1], &[1], &[2], &[2]]),
        (&family, 2, ALL, 3, &[&[1, 1], &[2, 2], &[1, 1], &[2, 2]]),
        (&[(2, &[1, 2, 3, 4]), (2, &[5]), (2, &[6])], 2, ALL, 0, &[&[1, 1], &[2, 2], &[1, 1]]),
        (&[(8, abc)], 2, 2, 0, &[&[1, 1, 2, 2, 1, 2, 1, 2]]),
    ] {
        assert_eq!(settled(batch, pods, k, m, false), expected, "{batch:?} on {pods}, k {k}, m {m}");
    }
}

#[test]
fn balance_by_tokens_counts_what_has_to_be_computed() {
    let short = settled(&[(2, &[1, 2, 3, 4]), (2, &[5]), (2, &[6])], 2, ALL, 0, true);
    assert_eq!(short, [[1, 1], [2, 2], [2, 2]]);
    let prompts = [20, 21, 22].map(|last| (1..10).chain([last]).collect::<Vec<u64>>());
    let batch: Vec<Prompts<'_>> = prompts.iter().map(|keys| (2, &keys[..])).collect();
    assert_eq!(settled(&batch, 2, ALL, 9, true), [[1, 1], [1, 1], [1, 1]]);
}

#[test]
fn longer_groups_are_placed_before_shorter_ones() {
    let batch: [Prompts<'_>; 3] = [(2, &[5]), (2, &[1, 2]), (2, &[6])];
    assert_eq!(settled(&batch, 3, ALL, 0, false), [[2, 2], [1, 1], [3, 3]]);
}

#[test]
fn the_fewest_running_requests_decide_between_equal_loads() {
    let names = names(3);
    let mut pods = replicas(&names);
    (pods[0].running, pods[1].running, pods[2].running) = (3.0, 1.0, 1.0);
    let mut plan = Plan::new(Rules { most_per_replica: ALL, least_shared: 0, by_tokens: false });
    let group = plan.join(&[1]);
    assert_eq!(plan.place(group, &pods), Some(pods[1].id));
    assert_eq!(plan.place(group, &[]), None);
}

#[test]
fn who_leaves_takes_its_load_along() {
    for by_tokens in [false, true] {
        let names = names(2);
        let pods = replicas(&names);
        let mut plan = Plan::new(Rules { most_per_replica: ALL, least_shared: 1, by_tokens });
        let members: Vec<_> = [&[1, 2][..], &[1, 2], &[1, 3], &[4]].map(|keys| plan.join(keys)).into();
        let places: Vec<_> = members.iter().map(|group| plan.place(*group, &pods)).collect();
        plan.fade(members[0]);
        members[1..].iter().zip(&places[1..]).for_each(|(group, place)| plan.leave(*group, *place));
        assert_eq!(plan.groups(), 1);
        plan.vanish(members[0], places[0].unwrap());
        assert_eq!((plan.groups(), plan.total), (0, 0));
        assert!(plan.loads.is_empty() && plan.families.is_empty() && plan.by_first.is_empty(), "{plan:?}");
    }
}

#[test]
fn a_group_moves_on_when_its_replica_is_gone() {
    let names = names(2);
    let pods = replicas(&names);
    let mut plan = Plan::new(Rules { most_per_replica: ALL, least_shared: 0, by_tokens: false });
    let group = plan.join(&[1]);
    assert_eq!(plan.place(group, &pods), Some(pods[0].id));
    plan.join(&[1]);
    assert_eq!(plan.place(group, &pods[1..]), Some(pods[1].id));
}

proptest! {
    /// Members come one by one, in any order.
    #[test]
    fn members_go_together_and_never_over_the_cap(
        order in proptest::collection::vec((0u64..5, 0u64..3), 1..60),
        pods in 1usize..5,
        k in prop_oneof![Just(ALL), 1usize..4],
        m in 0usize..3,
        by_tokens in any::<bool>(),
    ) {
        let names = names(pods);
        let pods = replicas(&names);
        let mut plan = Plan::new(Rules { most_per_replica: k, least_shared: m, by_tokens });
        let mut placed: HashMap<GroupId, Vec<usize>> = HashMap::new();
        for (a, b) in order {
            let group = plan.join(&[a, 10 * a + b]);
            let place = plan.place(group, &pods);
            prop_assert!(place.is_some());
            let on = placed.entry(group).or_insert_with(|| vec![0; pods.len()]);
            let full_before = on.iter().all(|&n| n >= k);
            let slot = place.map_or(0, EndpointId::slot);
            prop_assert!(on[slot] < k || full_before);
            on[slot] += 1;
        }
        for on in placed.values() {
            let used = on.iter().filter(|&&n| n > 0).count();
            prop_assert!(k < ALL || used == 1, "{on:?}");
        }
    }
}
