//! Every arrow of every machine is taken by some scenario; and none that is not listed, which
//! `arrows::take` sees to wherever a machine runs.

use super::{acquire, cancel, close, links, local, reentry, release, road, together, turns, waiting, watchdog};
use crate::arrows::taken::missing;

#[test]
fn every_arrow_is_taken() {
    let scenarios: &[fn()] = &[
        acquire::a_cycle_is_two_requests,
        acquire::s6_a_grant_claimed_too_late_is_given_back_m26,
        acquire::s6_a_single_try_claimed_too_late_is_busy,
        acquire::s6_a_grant_that_comes_after_its_lease_is_not_told_as_a_loss,
        acquire::an_unclaimed_grant_goes_back_and_its_waiter_is_passed_over,
        acquire::one_who_is_passed_over_still_runs_out_of_time,
        acquire::wait_zero_is_one_try,
        acquire::l5_a_wait_is_total,
        acquire::f07_without_the_script_it_is_sent_as_text,
        acquire::what_the_server_refuses_is_told_by_its_code,
        acquire::what_passes_is_tried_again,
        cancel::r1_cancelled_in_every_state,
        cancel::r1_cancelled_while_waiting,
        close::closing_within_a_section_is_a_loss_told_before_the_release,
        links::a_wait_outlasts_its_server,
        links::a_channel_nobody_wants_any_more_is_not_asked_for_again,
        links::whatever_became_of_a_subscription_it_is_asked_for_again_with_the_link,
        links::wait_again_right_behind_the_last_waiter,
        reentry::a_reentry_never_takes_the_lock_anew,
        local::local_reentry_sends_nothing,
        together::two_acquires_of_one_owner_at_once_reenter_locally_too,
        together::two_acquires_of_one_owner_at_once_share_the_hold,
        together::the_second_acquire_of_an_owner_reenters_wherever_it_was,
        release::row_5_nobody_answers_until_it_must_be_free,
        release::after_an_unknown_release_calling_again_is_allowed,
        release::an_inner_release_without_answer_ends_with_the_outer_one,
        road::renewals_need_no_fence,
        road::s4_where_the_fence_is_refused_the_release_is_said_again,
        road::closing_ends_the_echoes,
        road::a_connection_reported_lost_behind_the_release_is_killed,
        road::a_silent_renewal_is_given_up_early_enough_for_another,
        turns::who_released_lets_the_others_go_first,
        turns::two_others_go_first_each_in_its_turn,
        turns::nobody_waits_long_for_those_who_do_not_come,
        turns::a_grant_that_nobody_wanted_any_more_is_a_release_like_any,
        waiting::m43_a_message_overtakes_the_busy_reply,
        waiting::f36_a_refused_subscription_is_told_and_waiting_goes_by_time,
        watchdog::l6_one_refused_key_harms_no_other,
        watchdog::a_doubtful_hold_is_released_or_lost_like_any_other,
    ];
    for scenario in scenarios {
        scenario();
    }
    for (machine, table) in [
        ("acquire", crate::acquire::ARROWS),
        ("release", crate::release::ARROWS),
        ("hold", crate::hold::ARROWS),
        ("subscription", crate::channels::ARROWS),
        ("turn", crate::waiters::turns::ARROWS),
    ] {
        assert_eq!(missing(table), [], "arrows of {machine} that nothing takes");
    }
}
