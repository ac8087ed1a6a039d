package config

import (
	"reflect"
	"testing"
	"time"
)

// The daemon parses exactly what provisioning renders.
func TestRenderedArgumentsReadBackAsTheyWere(t *testing.T) {
	manager := DefaultControllerManager()
	manager.Kubeconfig, manager.APIServers, manager.SecurePort = "/a/b.conf", []string{"a:1", "b:2"}, 1
	manager.NodeMonitorPeriod, manager.LeaderElect = 7*time.Second, false
	kubelet := DefaultKubelet()
	kubelet.NodeLabels = map[string]string{"b": "2", "a": "1"}
	for _, c := range []struct{ cfg, def, fresh any }{
		{&manager, ptr(DefaultControllerManager()), ptr(DefaultControllerManager())},
		{&kubelet, ptr(DefaultKubelet()), ptr(DefaultKubelet())},
		{ptr(DefaultDNS()), ptr(DefaultDNS()), ptr(DefaultDNS())},
		{ptr(DefaultIngress()), ptr(DefaultIngress()), ptr(DefaultIngress())},
		{&Etcd{Name: "x", ClientCertAuth: true}, &Etcd{}, &Etcd{}},
	} {
		args := Args(c.cfg, c.def)
		if err := Flags("test", c.fresh).Parse(args); err != nil {
			t.Errorf("%v: %v", args, err)
			continue
		}
		if !reflect.DeepEqual(c.cfg, c.fresh) {
			t.Errorf("%v reads as %+v, was %+v", args, c.fresh, c.cfg)
		}
	}
}

func TestWhatIsAtItsDefaultIsLeftOutUnlessScannersLookForIt(t *testing.T) {
	got := Args(ptr(DefaultScheduler()), ptr(DefaultScheduler()))
	if want := []string{"--bind-address=127.0.0.1", "--profiling=false"}; !reflect.DeepEqual(got, want) {
		t.Errorf("rendered %v, expected %v", got, want)
	}
}

func TestAnUnknownFlagIsAnError(t *testing.T) {
	cfg := DefaultProxy()
	if err := Flags("test", &cfg).Parse([]string{"--no-such-flag"}); err == nil {
		t.Error("taken")
	}
}

func ptr[T any](v T) *T { return &v }
