package network

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config/inventory"
	"clusterctl/kube/kubernetes/fake"
)

// An invalid or missing inventory does not count as one without machines: callers are still answered.
func TestABrokenInventoryKeepsTheLastMachines(t *testing.T) {
	good := inventory.Inventory{"cp": {Roles: []string{"control-plane"}, Addresses: []string{"10.0.0.1"}}}
	data, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	object := func(version string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       metav1.NamespaceSystem,
				Name:            inventory.Name,
				ResourceVersion: version,
			},
			Data: data,
		}
	}
	client, changed := fake.NewClientset(), make(chan struct{}, 10)
	var output bytes.Buffer
	log := slog.New(slog.NewTextHandler(&output, nil))
	var m machineInventory
	if err := m.watch(t.Context(), client, log, func() { changed <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if got := m.list(log); got != nil {
		t.Errorf("before there is an inventory: %v", got)
	}
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"good", func() error {
			_, err := maps.Create(t.Context(), object("1", data), metav1.CreateOptions{})
			return err
		}},
		{"broken", func() error {
			_, err := maps.Update(t.Context(), object("2", map[string]string{"cp": "{"}), metav1.UpdateOptions{})
			return err
		}},
		{"empty", func() error {
			_,
				err := maps.Update(t.Context(), object("3", nil), metav1.UpdateOptions{})
			return err
		}},
		{"gone", func() error { return maps.Delete(t.Context(), inventory.Name, metav1.DeleteOptions{}) }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatalf("%s: no change is reported", step.name)
		}
		if got := m.list(log); !reflect.DeepEqual(got, good) {
			t.Errorf("%s: %v", step.name, got)
		}
	}
	if n := strings.Count(output.String(), "cannot be used"); n != 2 {
		t.Errorf("the log should say twice why an inventory is of no use:\n%s", &output)
	}
}

// A machine whose calls pods cannot answer logs this once each time it starts.
func TestAMachineThatPodsCannotAnswerIsLogged(t *testing.T) {
	sites, nodes, list := newControlledRegion(t)
	var output bytes.Buffer
	d := newRouteReports("n0", slog.New(slog.NewTextHandler(&output, nil)))
	for i, c := range []struct {
		list inventory.Inventory
		want int
	}{{list, 0}, {nil, 1}, {nil, 1}, {list, 1}, {inventory.Inventory{"n0": {Addresses: []string{"192.0.2.1"}}}, 2}} {
		p, _ := sites[0].joinWith(t, "n0", nodes, 4096, c.list)
		d.logUnanswered(p.isUnanswered())
		if got := strings.Count(output.String(), "cannot answer this machine"); got != c.want {
			t.Errorf("after step %d it has said so %d times, should be %d", i, got, c.want)
		}
	}
	p, _ := sites[1].joinWith(t, "n1", nodes, 4096, nil)
	if p.isUnanswered() {
		t.Error("a node says that pods do not answer it")
	}
}
