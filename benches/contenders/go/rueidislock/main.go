// rueidislock, for one Redis of 7.0.5 or newer as its documentation has it: KeyMajority 1, NoLoopTracking. Renewed at
// half the lease (its default); a waiter is woken by client side caching. With its default TryNextAfter of 20 ms, an
// answer that comes later is given up, and no message ends the wait for a lock that nobody holds. A second is safer.
package main

import (
	"context"
	"time"

	"bandog.benches/contenders/race"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type party struct{ locker rueidislock.Locker }

func open(address string, lease time.Duration) race.Party {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    lease,
		TryNextAfter:   time.Second,
	})
	race.Must(err)
	return party{locker}
}

func (p party) Lock(name string) func() func() {
	return func() func() {
		_, release, err := p.locker.WithContext(context.Background(), name)
		race.Must(err)
		return release
	}
}

func (p party) Keep(name string) func() bool {
	ctx, _, err := p.locker.WithContext(context.Background(), name)
	race.Must(err)
	return func() bool { return ctx.Err() != nil }
}

func (p party) Key(name string) string { return "rueidislock:0:" + name }

func (p party) Count(keys []string) int {
	client := p.locker.Client()
	count, err := client.Do(context.Background(), client.B().Exists().Key(keys...).Build()).AsInt64()
	race.Must(err)
	return int(count)
}

func main() {
	race.Run(race.Contender{Open: open})
}
