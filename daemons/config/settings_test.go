package config_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/config"
	"clusterctl/daemons/config/configtest"
)

func pointer[T any](v T) any { return &v }

// defaults holds the constructors of configurations with settings, by the names of their blocks.
var defaults = map[string]func() any{
	"scheduler":   func() any { return pointer(config.DefaultScheduler()) },
	"controllers": func() any { return pointer(config.DefaultControllerManager()) },
	"kubelet":     func() any { return pointer(config.DefaultKubeletSettings()) },
	"proxy":       func() any { return pointer(config.DefaultProxy()) },
	"network":     func() any { return pointer(config.DefaultNetwork()) },
	"dns":         func() any { return pointer(config.DefaultDNS()) },
	"ingress":     func() any { return pointer(config.DefaultIngress()) },
	"gitops":      func() any { return pointer(config.DefaultGitOps()) },
}

func TestSettingsHaveNamesOfTheLanguageAndSayWhatTheyAre(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+(_[a-z0-9]+)*$`)
	for block, def := range defaults {
		seen := map[string]bool{}
		for _, s := range config.Settings(def()) {
			if !name.MatchString(s.Name) || seen[s.Name] {
				t.Errorf("%s: %q is no name, or is there twice", block, s.Name)
			}
			if s.Help == "" || strings.HasSuffix(s.Help, ".") || s.DaemonName == "" {
				t.Errorf("%s.%s: help is %q, and its name is %q", block, s.Name, s.Help, s.DaemonName)
			}
			seen[s.Name] = true
		}
		if len(seen) == 0 {
			t.Errorf("%s has no settings", block)
		}
		if problems := config.Problems(def()); len(problems) > 0 {
			t.Errorf("%s: the defaults are refused: %v", block, problems)
		}
	}
}

// roundTrip renders a configuration as provisioning does, and parses it as the daemon does.
func roundTrip(t rapid.TB, cfg, def any) any {
	if k, ok := cfg.(*config.KubeletSettings); ok {
		text, err := yaml.Marshal(k.KubeletFile)
		if err != nil {
			t.Fatal(err)
		}
		file, err := config.ReadKubeletFile(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		flags := roundTrip(t, &k.Kubelet, pointer(config.DefaultKubelet()))
		return &config.KubeletSettings{Kubelet: *flags.(*config.Kubelet), KubeletFile: file}
	}
	args := config.Args(cfg, def)
	if err := config.Flags("test", def).Parse(args); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return def
}

func TestEverySettingIsReadBackAsItWasRendered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SampledFrom(slices.Sorted(func(yield func(string) bool) {
			for name := range defaults {
				if !yield(name) {
					return
				}
			}
		})).Draw(t, "block")
		cfg := defaults[block]()
		for _, s := range config.Settings(cfg) {
			others := configtest.Others(cfg, s)
			if len(others) > 0 && rapid.Bool().Draw(t, s.Name) {
				s.Put(cfg, rapid.SampledFrom(others).Draw(t, s.Name+" is"))
			}
		}
		read := roundTrip(t, cfg, defaults[block]())
		for _, s := range config.Settings(cfg) {
			merged := s.Name == "eviction_hard" && cfg.(*config.KubeletSettings).MergeDefaultEvictionSettings
			if got, want := s.Of(read), s.Of(cfg); !merged && !reflect.DeepEqual(got, want) &&
				config.Text(got) != config.Text(want) {
				t.Errorf("%s.%s was %s, and is read as %s", block, s.Name, config.Text(want), config.Text(got))
			}
		}
	})
}

func TestWhatIsChosenGoesOverTheRestAndNothingElseDoes(t *testing.T) {
	var chosen config.Chosen[config.KubeletSettings]
	chosen.Choose("max_pods", 110) // the default, but set explicitly
	chosen.Choose("cgroup_root", "/lab")
	copied := chosen
	copied.Choose("pod_pids_limit", 7)
	text, err := json.Marshal(chosen)
	if err != nil || string(text) != `{"cgroup_root":"/lab","max_pods":110}` {
		t.Fatalf("written as %s, %v", text, err)
	}
	var read config.Chosen[config.KubeletSettings]
	if err := json.Unmarshal([]byte(`{"cgroup_root":"/lab","max_pods":110,"CgroupRoot":"","of_another_release":{}}`), &read); err != nil ||
		!reflect.DeepEqual(read, chosen) {
		t.Fatalf("read as %+v, %v", read, err)
	}
	cfg := config.DefaultKubeletSettings()
	cfg.MaxPods, cfg.PodPidsLimit = 20, 30
	read.Over(&cfg)
	if cfg.MaxPods != 110 || cfg.CgroupRoot != "/lab" || cfg.PodPidsLimit != 30 {
		t.Errorf("laid over: %d pods, %q, %d processes", cfg.MaxPods, cfg.CgroupRoot, cfg.PodPidsLimit)
	}
}

func TestThresholdsOfEvictionAreAllThatTheFileHas(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for text, want := range map[string]int{
		"": 4, "evictionHard: {memory.available: 1Gi}": 1, "evictionHard: {}": 0, "evictionHard: {pid.available: " +
			"10%}\nmergeDefaultEvictionSettings: true": 5,
	} {
		file, err := config.ReadKubeletFile([]byte(head + text))
		if err != nil || len(file.EvictionHard) != want {
			t.Errorf("%q: %v, %v", text, file.EvictionHard, err)
		}
	}
}

func TestDaemonsRefuseWhatTheyWouldNotCarryOut(t *testing.T) {
	manager, proxy, dns := config.DefaultControllerManager(), config.DefaultProxy(), config.DefaultDNS()
	manager.UnhealthyZoneThreshold, manager.NodeMonitorPeriod, manager.NodeCIDRMaskSize = 55, time.Minute, 12
	manager.Controllers = []string{"*", "-gc"}
	proxy.ProxyMode, proxy.NodePortAddresses = "ipvs", []string{"primary"}
	dns.Upstream, dns.CacheTTL = []string{"dns.example.com", "10.0.0.53:dns", "10.0.0.53:5353", "[fd00::53]"}, 0
	for _, c := range []struct {
		cfg  any
		want []string
	}{
		{&manager, []string{"--unhealthy-zone-threshold: must be from 0 to 1, and is " +
			"55", "--controllers: no controller is named", "--node-cidr-mask-size: must be from 16 to " +
			"32", "--node-monitor-grace-period: "}},
		{&proxy, []string{`--proxy-mode: "ipvs" is not carried out`, "--nodeport-addresses: "}},
		{&dns, []string{`--upstream: "dns.example.com" `, `--upstream: "10.0.0.53:dns" `, "--cache-ttl: must be from 1s to 1h, and is 0s"}},
	} {
		err := config.Check(c.cfg)
		if err == nil {
			t.Errorf("%T is taken", c.cfg)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		for _, want := range c.want {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
				t.Errorf("%q is not among %q", want, lines)
			}
		}
		if len(lines) != len(c.want) {
			t.Errorf("%d are refused: %q", len(lines), lines)
		}
	}
}
