// Package race has the scenarios of the race, the same for every Go contender: <program> <scenario> <url> <json>.
package race

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	lease = 30 * time.Second
	first = 200
	batch = 1000
)

// Party is one client of its own, whose locks live for the lease it was made with.
type Party interface {
	// Lock makes a short section of a name, for one goroutine: acquire, which gives release.
	Lock(name string) func() (release func())
	// Keep takes a lock for long, renewed by the library itself, and tells later whether it was lost.
	Keep(name string) (lost func() bool)
	// Key is the key in Redis, and Count how many of these keys there are.
	Key(name string) string
	Count(keys []string) int
}

// Contender makes parties. Absent has the scenarios that the library cannot do, and why.
type Contender struct {
	Open   func(address string, lease time.Duration) Party
	Absent map[string]string
}

type task struct {
	Name     string  `json:"name"`
	Pairs    int     `json:"pairs"`
	Inflight int     `json:"inflight"`
	Rounds   int     `json:"rounds"`
	Tasks    int     `json:"tasks"`
	HoldMs   int     `json:"hold_ms"`
	StartAt  float64 `json:"start_at"`
	Seconds  float64 `json:"seconds"`
	Locks    int     `json:"locks"`
	LeaseMs  int     `json:"lease_ms"`
}

type runner struct {
	task
	open    func(lease time.Duration) Party
	seconds time.Duration
}

// Run does what the command line asks for.
func Run(contender Contender) {
	scenario, url := os.Args[1], os.Args[2]
	if why, ok := contender.Absent[scenario]; ok {
		say(map[string]any{"unsupported": why})
		return
	}
	var asked task
	Must(json.Unmarshal([]byte(os.Args[3]), &asked))
	open := func(lease time.Duration) Party { return contender.Open(strings.TrimPrefix(url, "redis://"), lease) }
	run := runner{asked, open, time.Duration(asked.Seconds * float64(time.Second))}
	scenarios := map[string]func() any{
		"pair": run.pair, "storm": run.storm, "handoff": run.handoff,
		"contend": run.contend, "held": run.held, "blocked": run.blocked,
	}
	say(scenarios[scenario]())
}

func (r runner) pair() any {
	lock := r.open(lease).Lock(r.Name)
	pairs(lock, max(first, r.Pairs/10))
	return percentiles(pairs(lock, r.Pairs))
}

func (r runner) storm() any {
	party := r.open(lease)
	flood := func(span time.Duration) float64 {
		var done atomic.Int64
		var all sync.WaitGroup
		end := time.Now().Add(span)
		for k := range r.Inflight {
			all.Go(func() {
				lock := party.Lock(fmt.Sprintf("%s:%d", r.Name, k))
				for {
					lock()()
					if !time.Now().Before(end) {
						return
					}
					done.Add(1)
				}
			})
		}
		all.Wait()
		return float64(done.Load()) / span.Seconds()
	}
	pairs(party.Lock(r.Name+":first"), first)
	flood(r.seconds / 10)
	return map[string]any{"pairs_per_s": flood(r.seconds)}
}

func (r runner) handoff() any {
	one, two := r.open(lease).Lock(r.Name), r.open(lease).Lock(r.Name)
	round := func() time.Duration {
		release := one()
		got := make(chan time.Time)
		go func() {
			give := two()
			now := time.Now()
			give()
			got <- now
		}()
		// Not always the same: whoever polls is to be met at any point of its interval.
		time.Sleep(20*time.Millisecond + time.Duration(rand.Int63n(int64(100*time.Millisecond))))
		left := time.Now()
		release()
		return (<-got).Sub(left)
	}
	pairs(one, first)
	pairs(two, first)
	for range r.Rounds / 10 {
		round()
	}
	took := make([]time.Duration, r.Rounds)
	for n := range took {
		took[n] = round()
	}
	return percentiles(took)
}

func (r runner) contend() any {
	party := r.open(lease)
	pairs(party.Lock(fmt.Sprintf("%s:first:%d", r.Name, os.Getpid())), first)
	start := time.UnixMicro(int64(r.StartAt * 1e6))
	end := start.Add(r.seconds)
	if time.Now().After(start) {
		panic("ready only after the start")
	}
	lanes := make([]lane, r.Tasks)
	var all sync.WaitGroup
	for k := range lanes {
		all.Go(func() {
			lock := party.Lock(r.Name)
			time.Sleep(time.Until(start))
			for asked := start; asked.Before(end); asked = time.Now() {
				lanes[k].ask(asked)
				release := lock()
				if lanes[k].got(end) {
					time.Sleep(time.Duration(r.HoldMs) * time.Millisecond)
					lanes[k].over()
				}
				release()
			}
		})
	}
	time.Sleep(time.Until(end))
	acquired := make([]int, r.Tasks)
	longest := make([]int64, r.Tasks)
	held := make([]float64, r.Tasks)
	for k := range lanes {
		acquired[k], longest[k], held[k] = lanes[k].told(end)
	}
	// Time to release; but a waiter that missed its message may sleep for long.
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(time.Second):
	}
	return map[string]any{"acquired": acquired, "longest_wait_ms": longest, "held_ms": held}
}

// lane is what one of the contending tasks has got so far.
type lane struct {
	sync.Mutex
	acquired int
	longest  time.Duration
	asked    time.Time
	held     time.Duration
	since    time.Time
}

func (l *lane) ask(now time.Time) {
	l.Lock()
	defer l.Unlock()
	l.asked = now
}

func (l *lane) got(end time.Time) bool {
	l.Lock()
	defer l.Unlock()
	now := time.Now()
	if !now.Before(end) {
		return false
	}
	l.acquired++
	l.longest = max(l.longest, now.Sub(l.asked))
	l.asked = time.Time{}
	l.since = now
	return true
}

func (l *lane) over() {
	l.Lock()
	defer l.Unlock()
	l.held += time.Since(l.since)
	l.since = time.Time{}
}

// told counts a wait or a hold that the end cuts off as one, too.
func (l *lane) told(end time.Time) (acquired int, longestMs int64, heldMs float64) {
	l.Lock()
	defer l.Unlock()
	if !l.asked.IsZero() {
		l.longest = max(l.longest, end.Sub(l.asked))
	}
	if !l.since.IsZero() {
		l.held += time.Since(l.since)
		l.since = time.Time{}
	}
	return l.acquired, l.longest.Milliseconds(), l.held.Seconds() * 1000
}

func (r runner) held() any {
	party := r.open(time.Duration(r.LeaseMs) * time.Millisecond)
	pairs(party.Lock(r.Name+":first"), max(first, min(r.Locks/10, 2000)))
	before := rss()
	start := time.Now()
	lost := make([]func() bool, r.Locks)
	keys := make([]string, r.Locks)
	room := make(chan struct{}, batch)
	var all sync.WaitGroup
	for n := range r.Locks {
		room <- struct{}{}
		all.Go(func() {
			name := fmt.Sprintf("%s:%d", r.Name, n)
			keys[n] = party.Key(name)
			lost[n] = party.Keep(name)
			<-room
		})
	}
	all.Wait()
	took := time.Since(start)
	used := cpu()
	time.Sleep(r.seconds)
	used = cpu() - used
	grown := rss() - before
	flagged, there := 0, 0
	for n := range lost {
		if lost[n]() {
			flagged++
		}
	}
	for part := range slices.Chunk(keys, batch) {
		there += party.Count(part)
	}
	return map[string]any{
		"took_s": took.Seconds(), "lost": max(flagged, r.Locks-there), "cpu_s": used.Seconds(), "rss_bytes": grown,
	}
}

// Go has neither a loop nor a GIL to block: what stands still is the goroutine that holds the lock.
func (r runner) blocked() any {
	span := time.Duration(r.LeaseMs) * time.Millisecond
	party := r.open(span)
	party.Keep(r.Name)
	say(map[string]any{"ready": true, "key": party.Key(r.Name)})
	time.Sleep(3 * span)
	return map[string]any{"done": true}
}

func pairs(lock func() func(), count int) []time.Duration {
	took := make([]time.Duration, count)
	for n := range took {
		start := time.Now()
		lock()()
		took[n] = time.Since(start)
	}
	return took
}

func percentiles(took []time.Duration) any {
	slices.Sort(took)
	us := func(share float64) float64 { return float64(took[int(float64(len(took))*share)].Nanoseconds()) / 1e3 }
	return map[string]any{"p50_us": us(0.5), "p99_us": us(0.99)}
}

func cpu() time.Duration {
	var used syscall.Rusage
	Must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func rss() int {
	text, err := os.ReadFile("/proc/self/statm")
	Must(err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	Must(err)
	return pages * os.Getpagesize()
}

func say(answer any) {
	Must(json.NewEncoder(os.Stdout).Encode(answer))
}

// Must ends the race on an error that nobody expected.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
