package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"clusterctl/tests/lab/plane"
)

// scrapeTarget is a path to scrape.
type scrapeTarget struct{ Job, Path, Address, Cert, File string }

// scrapeTargets returns everything to scrape.
func (w *world) scrapeTargets() []scrapeTarget {
	admin, store := w.path("admin"), w.path("apiserver-etcd-client")
	kubelet := net.JoinHostPort("127.0.0.1", strconv.Itoa(w.port))
	scheduler, controllers := w.plane.HealthAddress(w.plane.Scheduler), w.plane.HealthAddress(w.plane.Controllers)
	list := []scrapeTarget{
		{Job: "kube-dns", Path: "/metrics", Address: w.metrics},
		{Job: "etcd", Path: "/metrics", Address: w.plane.EtcdAddress(), Cert: store},
		{Job: "others", Path: "/metrics", File: w.extraTargets},
	}
	for address, paths := range map[scrapeTarget][]string{
		{Job: "apiserver", Address: w.plane.Addresses()[0]}:    {"/metrics", "/metrics/slis"},
		{Job: "kube-scheduler", Address: scheduler}:            {"/metrics", "/metrics/slis", "/metrics/resources"},
		{Job: "kube-controller-manager", Address: controllers}: {"/metrics", "/metrics/slis"},
		{Job: "kubelet", Address: kubelet}: {"/metrics", "/metrics/slis", "/metrics/cadvisor",
			"/metrics/probes", "/metrics/resource"},
	} {
		for _, path := range paths {
			address.Path, address.Cert = path, admin
			list = append(list, address)
		}
	}
	return list
}

// prometheus is a running Prometheus.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus starts Debian's Prometheus.
func (w *world) startPrometheus(flags ...string) *prometheus {
	w.t.Helper()
	binary, err := exec.LookPath("prometheus")
	if own := "../../../bin/prometheus"; err != nil {
		if binary, err = filepath.Abs(own); err == nil {
			_, err = os.Stat(binary)
		}
	}
	if err != nil {
		w.t.Fatalf("run `make bin/prometheus`, or apt-get install prometheus: %v", err)
	}
	var text bytes.Buffer
	w.must(template.Must(template.ParseFiles("testdata/scrape.yaml")).Execute(&text, w.scrapeTargets()))
	rules, err := os.ReadFile("testdata/rules.yaml")
	w.must(err)
	w.write("rules.yaml", rules)
	config := w.write("prometheus.yaml", text.Bytes())
	port := w.freePort()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd := exec.CommandContext(
		context.WithoutCancel(w.t.Context()),
		binary,
		append(
			[]string{
				"--config.file",
				config,
				"--storage.tsdb.path",
				w.t.TempDir(),
				"--web.listen-address",
				address,
				"--log.level",
				"warn",
			},
			flags...)...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.must(cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its exit status does not matter
		if w.t.Failed() {
			w.t.Logf("Prometheus: %s", &output)
		}
	})
	p := &prometheus{w.t, "http://" + address}
	w.waitFor("Prometheus", time.Minute, func() error { return p.get("/-/ready", nil) })
	return p
}

func (p *prometheus) get(path string, into any) error {
	r, err := http.NewRequestWithContext(p.t.Context(), "GET", p.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// countSeries returns the number of series of a query.
func (p *prometheus) countSeries(query string) (int, error) {
	var answer struct {
		Data struct {
			Result []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	err := p.get("/api/v1/query?query="+url.QueryEscape(query), &answer)
	return len(answer.Data.Result), err
}

// rule is a rule of Prometheus.
type rule struct {
	Name, Type, Health, LastError, State string
	Query                                string
	Alerts                               []struct{ State string }
}

func (p *prometheus) rules() ([]rule, error) {
	var answer struct {
		Data struct{ Groups []struct{ Rules []rule } }
	}
	err := p.get("/api/v1/rules", &answer)
	var list []rule
	for _, g := range answer.Data.Groups {
		list = append(list, g.Rules...)
	}
	if err == nil && len(list) == 0 {
		err = errors.New("Prometheus has no rules")
	}
	return list, err
}

// alerts returns the alerts that are pending or firing, and whether they fire.
func (p *prometheus) alerts() (map[string]bool, error) {
	list, err := p.rules()
	firing := map[string]bool{}
	for _, r := range list {
		if r.Type == "alerting" && r.State != "inactive" {
			firing[r.Name] = r.State == "firing"
		}
	}
	return firing, err
}

// awaitNoAlerts waits until no alert fires.
func (w *world) awaitNoAlerts(p *prometheus) {
	w.t.Helper()
	w.waitFor("no alert to fire", 4*time.Minute, func() error {
		alerts, err := p.alerts()
		if err == nil && len(alerts) > 0 {
			err = fmt.Errorf("%v", slices.Sorted(maps.Keys(alerts)))
		}
		return err
	})
}

func TestRulesHaveDataAndAlertsFire(t *testing.T) {
	w := startWorld(t)
	w.workload()
	p := w.startPrometheus()
	fired := map[string]bool{}
	t.Run("every rule has data, and no alert fires", func(t *testing.T) {
		w.t = t
		w.checkRules(p)
		w.awaitNoAlerts(p)
	})
	for _, f := range alertFaults {
		t.Run(f.name, func(t *testing.T) {
			w.t = t
			before, err := p.alerts()
			w.must(err)
			for _, name := range f.alerts {
				if before[name] {
					t.Fatalf("%s fires already", name)
				}
			}
			f.begin(w)
			w.waitFor(fmt.Sprint(f.alerts, " to fire"), 5*time.Minute, func() error {
				if f.repeat != nil {
					f.repeat(w)
				}
				now, err := p.alerts()
				for _, name := range f.alerts {
					if now[name] {
						fired[name] = true
					} else if err == nil {
						err = fmt.Errorf("%s does not, of %v", name, now)
					}
				}
				return err
			})
			f.end(w)
			w.awaitNoAlerts(p)
		})
	}
	w.t = t
	rules, err := p.rules()
	w.must(err)
	for _, r := range rules {
		if r.Type == "alerting" && !fired[r.Name] {
			t.Errorf("no fault made %s fire", r.Name)
		}
	}
}

// checkRules waits until every recording rule has had data while the cluster is busy, and checks that no rule fails.
func (w *world) checkRules(p *prometheus) {
	w.t.Helper()
	before := map[string]bool{}
	w.waitFor("every rule to have data", 5*time.Minute, func() error {
		w.makeActivity()
		list, err := p.rules()
		if err != nil {
			return err
		}
		var without []string
		for _, r := range list {
			if r.LastError != "" {
				return fmt.Errorf("%s: %s", r.Name, r.LastError)
			}
			if r.Type != "recording" || before[r.Name] {
				continue
			}
			n, err := p.countSeries(r.Name)
			if err != nil {
				return err
			}
			if before[r.Name] = n > 0; n == 0 {
				without = append(without, r.Name)
			}
		}
		if len(without) > 0 {
			return errors.New(strings.Join(without, ", "))
		}
		return nil
	})
}

// Prometheus before 2.45 stores native histograms in place of the classic ones, so this is a separate test.
func TestNativeHistograms(t *testing.T) {
	w := startWorld(t)
	p := w.startPrometheus("--enable-feature=native-histograms")
	for _, query := range []string{
		`histogram_quantile(0.99, sum(rate(apiserver_request_duration_seconds{job="apiserver"}[30s]))) > 0`,
		`histogram_count(sum(rate(rest_client_request_duration_seconds{job="kube-controller-manager"}[30s]))) > 0`,
		`histogram_quantile(0.9, sum by (name) (rate(workqueue_queue_duration_seconds{job="kube-controller-manager"}[30s]))) > 0`,
		`histogram_count(kubelet_runtime_operations_duration_seconds{job="kubelet"}) > 0`,
	} {
		w.waitFor(query, 2*time.Minute, func() error {
			w.makeActivity()
			n, err := p.countSeries(query)
			if err == nil && n == 0 {
				err = errors.New("no data")
			}
			return err
		})
	}
}

// restart ends a process of the control plane and starts it again.
func restart(w *world, p *plane.Process) {
	w.t.Helper()
	w.must(p.Stop()) // it may have ended by itself
	w.must(p.Start(context.WithoutCancel(w.t.Context())))
}
