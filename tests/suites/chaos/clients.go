package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/tests/suites/chaos/check"
)

// serverSets are the API servers of the clients, as indexes: one server, or all in different orders. The first four
// sets have a watcher, too.
var serverSets = [][]int{{0}, {1}, {2}, {0, 1, 2}, {1, 2, 0}, {2, 0, 1}}

// clients write and watch the same few objects through three API servers, and record the answers.
type clients struct {
	history *History
	watches []*Watcher

	work, watch       context.Context
	stop, stopWatch   func()
	working, watching sync.WaitGroup
}

// startClients starts the clients. open returns a client for some of the servers.
func startClients(ctx context.Context, open func(servers ...int) (kubernetes.Interface, error)) (*clients, error) {
	c := &clients{history: &History{start: time.Now()}}
	c.work, c.stop = context.WithCancel(ctx)
	c.watch, c.stopWatch = context.WithCancel(ctx)
	for i, set := range serverSets {
		own, err := open(set...)
		if err != nil {
			return nil, err
		}
		c.working.Go(func() { c.history.Client(c.work, i, len(set) > 1, own) })
		if i < 4 {
			view, err := open(set...)
			if err != nil {
				return nil, err
			}
			w := &Watcher{name: fmt.Sprint(set), api: view, endings: make(chan finalState, 1)}
			c.watches = append(c.watches, w)
			c.watching.Go(func() { _ = w.Run(c.watch) })
		}
	}
	return c, nil
}

// finish stops the clients. It returns how often watchers had to list again, and the violations found in all answers.
func (c *clients) finish(ctx context.Context, all kubernetes.Interface) (relists int, findings []string) {
	c.stop()
	c.working.Wait()
	defer c.stopWatch()
	end, err := writeEnding(ctx, all)
	if err != nil {
		findings = append(findings, "the end could not be written and listed: "+err.Error())
		c.stopWatch()
	}
	for _, w := range c.watches {
		w.endings <- end
	}
	seen := make(chan struct{})
	go func() { c.watching.Wait(); close(seen) }()
	select {
	case <-seen:
	case <-ctx.Done():
		c.stopWatch()
		<-seen
	}
	var views []check.Watch
	for _, w := range c.watches {
		views = append(views, w.views...)
		relists += len(w.views) - 1
		fmt.Printf("watcher of %s: %d views, resumed %d times, longest without a watch %s\n", w.name, len(w.views),
			w.resumes-1, w.longestGap.Round(time.Millisecond))
	}
	findings = append(findings, check.Watches(views, c.history.Acknowledged())...)
	return relists, append(findings, check.Linearizable(c.history.operations, 5*time.Minute)...)
}

// writeEnding creates a last object, whose event shows every watcher that it has received all, and lists the objects at
// its revision. Writes of unknown outcome may still be done after it.
func writeEnding(ctx context.Context, api kubernetes.Interface) (finalState, error) {
	last, err := api.CoreV1().
		ConfigMaps(namespace).
		Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "end-"}}, metav1.CreateOptions{})
	if err != nil {
		return finalState{}, err
	}
	end, err := listObjects(ctx, api, metav1.ListOptions{
		ResourceVersion: last.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if end.revision != revision(last) && err == nil {
		err = fmt.Errorf("the list at revision %d is at revision %d", revision(last), end.revision)
	}
	return end, err
}

// reportVerdict prints what was done and found.
func reportVerdict(seed uint64, faults int, h *History, relists int, findings []string) error {
	unknown := 0
	for _, op := range h.operations {
		if op.Outcome == check.OutcomeUnknown {
			unknown++
		}
	}
	fmt.Printf("chaos: seed %d: %d faults; %d operations (%d of unknown outcome; longest wait of a client of all "+
		"servers %s, until %s); %d watches begun again\n", seed, faults, len(h.operations), unknown,
		h.slowest.Round(time.Millisecond), h.start.Add(h.slowestAt).UTC().Format("15:04:05"), relists)
	if len(findings) == 0 {
		fmt.Println("chaos: nothing was found")
		return nil
	}
	for i, f := range findings {
		if i == 50 {
			fmt.Printf("FOUND … and %d more\n", len(findings)-i)
			break
		}
		fmt.Println("FOUND", f)
	}
	return errFound
}
