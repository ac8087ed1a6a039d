package run_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
)

const encryptionFile = "/etc/kubernetes/pki/encryption.yaml"

// encrypted returns the encryption configuration of the API servers, which must be the same on all machines.
func (w *world) encrypted() string {
	w.t.Helper()
	text := ""
	for address, h := range w.hosts {
		own, err := h.ReadFile(encryptionFile)
		if err != nil {
			w.t.Fatal(err)
		}
		if text != "" && text != string(own) {
			w.t.Fatalf("%s has another configuration than others: %s", address, own)
		}
		text = string(own)
	}
	return text
}

func (w *world) encrypt(e config.Encryption) { w.engine.Config.Encryption = e }

func TestEncryptionKeysAreRotatedWithoutARestart(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, third)
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	w.mustApply()
	if text := w.encrypted(); strings.Contains(text, "secretbox") {
		t.Errorf("without encryption, the servers have %s", text)
	}
	key := func(name string) config.Encryption {
		return config.Encryption{Provider: "secretbox", Key: name, Resources: []string{"secrets"}}
	}
	w.encrypt(key("one"))
	w.mustApply()
	if text := w.encrypted(); !strings.Contains(text, "name: one") ||
		strings.Index(text, "identity") < strings.Index(text, "secretbox") {
		t.Errorf("the servers have %s", text)
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("a second plan is not empty: %+v", again.Machines)
	}
	for _, h := range w.hosts {
		h.Log = nil
	}
	// While one machine is left out, no API server encrypts with the key that this machine lacks.
	w.encrypt(key("two"))
	w.engine.Excludes = []string{"machine.third"}
	w.mustApply()
	for _, name := range []string{"machine.control", "machine.second"} {
		text, _ := w.hosts[name].ReadFile(encryptionFile)
		if one, two := strings.Index(string(text), "name: one"), strings.Index(string(text), "name: two"); one < 0 ||
			two < one {
			t.Errorf("%s writes with a key that not all have: %s", name, text)
		}
	}
	w.engine.Excludes = nil
	w.mustApply()
	if text := w.encrypted(); !strings.Contains(text, "name: two") || strings.Contains(text, "name: one") {
		t.Errorf("after the rotation, the servers have %s", text)
	}
	for address, h := range w.hosts {
		for _, did := range h.Log {
			if strings.Contains(did, "restart") {
				t.Errorf("%s: %s", address, did)
			}
		}
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("a plan after the rotation is not empty: %+v", again.Machines)
	}
}

// While one API server has not yet loaded a new key from its file, no other encrypts with the key.
// Proves S10.
func TestKeysEncryptOnlyAfterAllServersHaveLoadedThem(t *testing.T) {
	w := newWorld(t, controlMachine, machine("second", "10.0.0.5", config.RoleControlPlane),
		machine("third", "10.0.0.6", config.RoleControlPlane))
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	key := func(name string) config.Encryption {
		return config.Encryption{Provider: "secretbox", Key: name, Resources: []string{"secrets"}}
	}
	w.encrypt(key("one"))
	w.mustApply()
	w.encrypt(key("two"))
	const taken = "https://10.0.0.5:6443/readyz/encryption-config"
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	second := w.hosts["machine.second"]
	second.AnswerErrors = map[string]error{taken: errors.New("it has not read it")}
	second.OnRequest = func(url string) {
		if url == taken {
			cancel() // the user interrupts the apply
		}
	}
	p, err := w.engine.Prepare(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(ctx); err == nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("the server that has not read its file is not waited for: %v", err)
	}
	p.Close()
	if text := w.encrypted(); !strings.Contains(text, "name: two") ||
		strings.Index(text, "name: two") < strings.Index(text, "name: one") {
		t.Errorf("the servers have %s", text)
	}
	second.HealPeers()
	w.agents.Wait() // including requests that are still open
	w.mustApply()
	if text := w.encrypted(); !strings.Contains(text, "name: two") || strings.Contains(text, "name: one") {
		t.Errorf("after all have the key, they have %s", text)
	}
}
