// Redsync over go-redis. A waiter asks again after 50 to 250 ms (its default), here for as long as it takes. Nothing
// renews by itself: Extend is the caller's.
package main

import (
	"context"
	"math"
	"time"

	"bandog.benches/contenders/race"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type party struct {
	client *redis.Client
	locks  *redsync.Redsync
	lease  time.Duration
}

func open(address string, lease time.Duration) race.Party {
	client := redis.NewClient(&redis.Options{Addr: address})
	return party{client, redsync.New(goredis.NewPool(client)), lease}
}

func (p party) Lock(name string) func() func() {
	mutex := p.locks.NewMutex(name, redsync.WithExpiry(p.lease), redsync.WithTries(math.MaxInt))
	return func() func() {
		race.Must(mutex.Lock())
		return func() {
			_, err := mutex.Unlock()
			race.Must(err)
		}
	}
}

func (p party) Keep(string) func() bool { panic("nothing renews") }

func (p party) Key(name string) string { return name }

func (p party) Count(keys []string) int {
	return int(p.client.Exists(context.Background(), keys...).Val())
}

func main() {
	why := "no automatic renewal"
	race.Run(race.Contender{Open: open, Absent: map[string]string{"held": why, "blocked": why}})
}
