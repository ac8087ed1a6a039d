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
	changed func(pod string) // called with namespace/name of a pod whose addresses may have changed
	file    string           // path of the file; "" for none

	mu       sync.Mutex
	lastTurn uint64
	byUID    map[string]*admission // by the UID that the kubelet uses
}

// admission is one pod for which admission was requested.
type admission struct {
	pod       string // UID in the API, once known
	addresses []netip.Addr
	turn      uint64        // higher for later requests
	loaded    bool          // loaded from the file
	ready     chan struct{} // closed when the pod's rules are in the kernel
}

// storedAdmission is an admission as the file holds it.
type storedAdmission struct {
	Addresses []netip.Addr `json:"addresses"`
	Turn      uint64       `json:"turn"`
}

// load reads the file.
func (a *admissions) load() error {
	text, err := os.ReadFile(a.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all map[string]storedAdmission
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return fmt.Errorf("read which pods were admitted: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, s := range all {
		a.byUID[uid] = &admission{addresses: s.Addresses, turn: s.Turn, loaded: true, ready: make(chan struct{})}
		a.lastTurn = max(a.lastTurn, s.Turn)
	}
	return nil
}

// save writes the file.
func (a *admissions) save() error {
	if a.file == "" {
		return nil
	}
	all := map[string]storedAdmission{}
	for uid, one := range a.byUID {
		all[uid] = storedAdmission{one.addresses, one.turn}
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

// dropDeleted drops admissions that were loaded from the file and whose pods no longer exist. Those requested since the
// start stay, because the kubelet may know a pod before the API's watch delivers it.
func (a *admissions) dropDeleted(existing map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.byUID, func(uid string, one *admission) bool { return one.loaded && !existing[uid] })
}

// request records a pod's addresses, and waits until the pod's rules are in effect.
func (a *admissions) request(ctx context.Context, pod admitpod.Pod) error {
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
	a.changed(pod.Namespace + "/" + pod.Name)
	select {
	case <-one.ready:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.pod == "" {
		if a.byUID[pod.UID] == one {
			delete(a.byUID, pod.UID)
		}
		return errors.New("this machine's network daemon has not heard of the pod")
	}
	return errors.New("the rules of the pod's network policies are not in the kernel yet")
}

func (a *admissions) add(uid string, addresses []netip.Addr) (*admission, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.byUID[uid]
	if one != nil && slices.Equal(one.addresses, addresses) {
		one.loaded = false
		return one, nil
	}
	a.lastTurn++
	current := &admission{addresses: addresses, turn: a.lastTurn, ready: make(chan struct{})}
	a.byUID[uid] = current
	if err := a.save(); err != nil {
		delete(a.byUID, uid)
		if one != nil {
			a.byUID[uid] = one
		}
		return nil, err
	}
	return current, nil
}

// find returns the admission of a pod by any of its UIDs, and records the pod's UID in the API. It returns nil if the
// kubelet has not requested admission of the pod.
func (a *admissions) find(pod string, ids []string) *admission {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if one := a.byUID[id]; one != nil {
			one.pod = pod
			return one
		}
	}
	return nil
}

// confirm notifies the waiting requests that the pod's rules are in the kernel, unless there was a newer request since
// that turn. pod is the UID in the API.
func (a *admissions) confirm(pod string, turn uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.byUID {
		if one.pod == pod && one.turn == turn {
			one.confirm()
		}
	}
}

// confirmUnneeded notifies the waiting requests that the pod, with any of its UIDs, needs no rules.
func (a *admissions) confirmUnneeded(ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if one := a.byUID[id]; one != nil {
			one.confirm()
		}
	}
}

func (one *admission) confirm() {
	select {
	case <-one.ready:
	default:
		close(one.ready)
	}
}

// remove removes a pod by its UID in the API.
func (a *admissions) remove(pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.byUID, func(uid string, one *admission) bool { return uid == pod || one.pod == pod })
}
