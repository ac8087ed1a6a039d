package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"clusterctl/daemons/api/admitpod"
)

// admissions holds the pods for which the kubelet has requested admission, with the addresses of their sandboxes. They
// are kept in a file, because the API may not have the addresses yet when this daemon restarts.
type admissions struct {
	note func(pod string) // called with namespace/name of a pod whose addresses may have changed
	file string           // path of the file; "" for none

	mu   sync.Mutex
	turn uint64
	all  map[string]*admission // by the UID that the kubelet uses
}

// admission is one pod for which admission was requested.
type admission struct {
	pod       string // UID in the API, once known
	addresses []netip.Addr
	turn      uint64        // higher for later requests
	loaded    bool          // loaded from the file
	held      chan struct{} // closed when the pod's rules are in the kernel
}

// stored is an admission as the file holds it.
type stored struct {
	Addresses []netip.Addr `json:"addresses"`
	Turn      uint64       `json:"turn"`
}

// load reads the file.
func (a *admissions) load() error {
	text, err := os.ReadFile(a.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all map[string]stored
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return fmt.Errorf("read which pods were admitted: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, s := range all {
		a.all[uid] = &admission{addresses: s.Addresses, turn: s.Turn, loaded: true, held: make(chan struct{})}
		a.turn = max(a.turn, s.Turn)
	}
	return nil
}

// save writes the file.
func (a *admissions) save() error {
	if a.file == "" {
		return nil
	}
	all := map[string]stored{}
	for uid, one := range a.all {
		all[uid] = stored{one.addresses, one.turn}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := writeFile(a.file, text); err != nil {
		return fmt.Errorf("keep which pods were admitted: %w", err)
	}
	return nil
}

// keep drops admissions that were loaded from the file and whose pods no longer exist. Those requested since the start
// stay, because the kubelet may know a pod before the API's watch delivers it.
func (a *admissions) keep(there map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.all, func(uid string, one *admission) bool { return one.loaded && !there[uid] })
}

// ask records a pod's addresses, and waits until the pod's rules are in effect.
func (a *admissions) ask(ctx context.Context, pod admitpod.Pod) error {
	var addresses []netip.Addr
	for _, s := range pod.IPs {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("read the pod's address: %w", err)
		}
		addresses = append(addresses, ip.Unmap())
	}
	if pod.UID == "" || pod.Namespace == "" || pod.Name == "" || len(addresses) == 0 {
		return errors.New("a pod is asked for by its uid, namespace, name and ips")
	}
	one, err := a.add(pod.UID, addresses)
	if err != nil {
		return err
	}
	a.note(pod.Namespace + "/" + pod.Name)
	select {
	case <-one.held:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.pod == "" {
		if a.all[pod.UID] == one {
			delete(a.all, pod.UID)
		}
		return errors.New("this machine's network daemon has not heard of the pod")
	}
	return errors.New("the rules of the pod's network policies are not in the kernel yet")
}

func (a *admissions) add(uid string, addresses []netip.Addr) (*admission, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.all[uid]
	if one != nil && slices.Equal(one.addresses, addresses) {
		one.loaded = false
		return one, nil
	}
	a.turn++
	is := &admission{addresses: addresses, turn: a.turn, held: make(chan struct{})}
	a.all[uid] = is
	if err := a.save(); err != nil {
		delete(a.all, uid)
		if one != nil {
			a.all[uid] = one
		}
		return nil, err
	}
	return is, nil
}

// of returns the admission of a pod by any of its UIDs, and records the pod's UID in the API. It returns nil if the
// kubelet has not requested admission of the pod.
func (a *admissions) of(pod string, ids []string) *admission {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if one := a.all[id]; one != nil {
			one.pod = pod
			return one
		}
	}
	return nil
}

// hold notifies the waiting requests that the pod's rules are in the kernel, unless there was a newer request since
// that turn. pod is the UID in the API.
func (a *admissions) hold(pod string, turn uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.all {
		if one.pod == pod && one.turn == turn {
			one.hold()
		}
	}
}

// free notifies the waiting requests that the pod, with any of its UIDs, needs no rules.
func (a *admissions) free(ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if one := a.all[id]; one != nil {
			one.hold()
		}
	}
}

func (one *admission) hold() {
	select {
	case <-one.held:
	default:
		close(one.held)
	}
}

// gone removes a pod by its UID in the API.
func (a *admissions) gone(pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.all, func(uid string, one *admission) bool { return uid == pod || one.pod == pod })
}
