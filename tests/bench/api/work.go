package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"clusterctl/tests/lab/plane"
)

// figure is one line of the table.
type figure struct {
	work     string
	unit     string
	upstream float64 // what upstream 1.36.3 needed on such a machine; 0: not measured
	mark     float64 // the maximum that is allowed
	goal     float64 // a lower maximum to aim for; 0: none
	measured float64
	note     string
}

// benchResult is the JSON object that kubebench prints for a measurement.
type benchResult struct {
	N          int            `json:"n"`
	Errors     int            `json:"errors"`
	FirstError string         `json:"first_error"`
	ElapsedS   float64        `json:"elapsed_s"`
	HostCPUs   float64        `json:"host_cpu_s"`
	ClientCPUs float64        `json:"client_cpu_s"`
	Extra      map[string]any `json:"extra"`
	Latency    struct {
		P50 float64 `json:"p50_ms"`
		P99 float64 `json:"p99_ms"`
		Max float64 `json:"max_ms"`
	} `json:"latency"`
	Procs map[string]struct {
		CPU    float64 `json:"cpu_s"`
		Before float64 `json:"rss_before_mib"`
		After  float64 `json:"rss_after_mib"`
		Peak   float64 `json:"peak_rss_mib"`
	} `json:"procs"`
}

// bench runs kubebench and adds its measurements to the table.
type bench struct {
	*plane.Plane
	scale   int // divides the amounts; 1 is the full measurement
	figures []figure
}

func (b *bench) kubebench(ctx context.Context, args ...string) (benchResult, error) {
	pids := fmt.Sprintf("etcd=%d", b.Etcd[0].PID())
	if pid := b.API[0].PID(); pid != 0 {
		pids += fmt.Sprintf(",api=%d", pid)
	}
	// The flags go before "--", which ends kubebench's own flags.
	args = append([]string{args[0], "--kubeconfig", b.Kubeconfig(), "--proc", pids}, args[1:]...)
	fmt.Fprintln(os.Stderr, "kubebench", strings.Join(args[5:], " "), args[0])
	cmd := exec.CommandContext(ctx, filepath.Join(b.Bin, "kubebench"), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return benchResult{}, fmt.Errorf("kubebench %s: %w", args[0], err)
	}
	var l benchResult
	if err := json.Unmarshal(out, &l); err != nil {
		return l, fmt.Errorf("kubebench %s printed %.200q: %w", args[0], out, err)
	}
	if l.Errors > 0 {
		return l, fmt.Errorf("kubebench %s: %d of %d failed, first: %s", args[0], l.Errors, l.N, l.FirstError)
	}
	return l, nil
}

func (b *bench) scaled(n int) string { return strconv.Itoa(max(n/b.scale, 16)) }

func (b *bench) add(f figure) {
	b.figures = append(b.figures, f)
	fmt.Fprintf(os.Stderr, "  %s: %.4g %s (mark %.4g)\n", f.work, f.measured, f.unit, f.mark)
}

// verbCase is a measurement of one verb on single objects: upstream's CPU seconds per 10,000, and the divisor that
// gives the mark.
type verbCase struct {
	name, kind     string
	protobuf, json float64
	divisor        float64
}

var verbCases = []verbCase{
	{"create", "configmap", 8.3, 9.6, 4},
	{"get", "configmap", 4.4, 3.2, 6},
	{"update", "configmap", 10.4, 13.4, 4},
	{"delete", "configmap", 8.0, 9.2, 4},
	{"create", "pod", 11.6, 12.1, 4},
	{"get", "pod", 4.8, 6.4, 6},
	{"update", "pod", 16.8, 19.3, 4},
	{"patch", "pod", 20.7, 23, 4},
	{"delete", "pod", 16.2, 18.4, 4},
}

// rounds is how often the verbs on single objects are measured. Results vary with the timing of the sixteen clients and
// with other load on the machine. The table shows the median.
const rounds = 5

// watchRounds is how often watches are measured. One stall of half a second, of the disk for example, is in the 99th
// percentile of its round.
const watchRounds = 3

// measureObjects measures the five verbs on single objects.
func (b *bench) measureObjects(ctx context.Context) error {
	lines := map[string][]benchResult{}
	for range rounds {
		for _, v := range verbCases {
			for _, content := range []string{"protobuf", "json"} {
				args := []string{
					v.name,
					"--kind",
					v.kind,
					"--content-type",
					content,
					"--namespace",
					"bench-" + content,
					"--n",
					b.scaled(5000),
				}
				if v.name == "get" {
					args = append(args, "--n", b.scaled(10000), "--population", b.scaled(5000))
				}
				l, err := b.kubebench(ctx, args...)
				if err != nil {
					return err
				}
				name := v.name + " " + v.kind + ", " + content
				lines[name] = append(lines[name], l)
			}
		}
	}
	for _, v := range verbCases {
		for _, content := range []string{"protobuf", "json"} {
			upstream := v.protobuf / 10
			if content == "json" {
				upstream = v.json / 10
			}
			name := v.name + " " + v.kind + ", " + content
			measured := lines[name]
			l := medianBy(measured, func(l benchResult) float64 { return l.perOperation("api") })
			b.add(figure{
				work: name, unit: "CPU ms", upstream: upstream, mark: upstream / v.divisor,
				measured: l.perOperation("api"),
				note: fmt.Sprintf("%.3g to %.3g; p50/p99 %.1f/%.1f ms; etcd %.2f CPU ms",
					measured[0].perOperation("api"), measured[len(measured)-1].perOperation("api"), l.Latency.P50,
					l.Latency.P99, l.perOperation("etcd")),
			})
		}
	}
	return nil
}

// medianBy sorts lines by what of returns, and returns the middle one.
func medianBy(lines []benchResult, of func(benchResult) float64) benchResult {
	slices.SortFunc(lines, func(a, b benchResult) int { return cmp.Compare(of(a), of(b)) })
	return lines[len(lines)/2]
}

// perOperation returns a process' CPU time for each operation, in milliseconds.
func (l benchResult) perOperation(process string) float64 {
	return 1000 * l.Procs[process].CPU / float64(l.N)
}

// measureLists measures lists of 10,000 pods. The pods remain for the watches.
func (b *bench) measureLists(ctx context.Context) error {
	if _, err := b.kubebench(ctx, "create", "--kind", "pod", "--n", b.scaled(10000), "--concurrency",
		"64"); err != nil {
		return err
	}
	for _, c := range []struct {
		name           string
		args           []string
		upstream, part float64
	}{
		{"list 10,000 pods, protobuf", []string{"--content-type", "protobuf"}, 0.19, 8},
		{"list 10,000 pods, protobuf, resourceVersion 0", []string{"--content-type", "protobuf", "--rv", "0"}, 0.17, 8},
		{"list 10,000 pods, JSON", []string{"--content-type", "json"}, 0.29, 8},
		{"list 10,000 pods, JSON, resourceVersion 0", []string{"--content-type", "json", "--rv", "0"}, 0.28, 8},
		{"a page of 500, protobuf", []string{"--content-type", "protobuf", "--limit", "500"}, 0.013, 8},
		{"a page of 500, JSON", []string{"--content-type", "json", "--limit", "500"}, 0.020, 8},
		{"label selector that matches nothing", []string{"--content-type", "protobuf", "--selector", "app=none"}, 0.010,
			8},
	} {
		l, err := b.kubebench(ctx, append([]string{"list", "--kind", "pod", "--n", "100", "--concurrency", "1"},
			c.args...)...)
		if err != nil {
			return err
		}
		b.add(figure{work: c.name, unit: "CPU ms", upstream: 1000 * c.upstream, mark: 1000 * c.upstream / c.part,
			measured: l.perOperation("api"), note: fmt.Sprintf("p50/p99 %.1f/%.1f ms", l.Latency.P50, l.Latency.P99)})
	}
	l, err := b.kubebench(ctx, "list", "--kind", "pod", "--n", "50", "--concurrency", "10", "--connections", "10")
	if err != nil {
		return err
	}
	api := l.Procs["api"]
	b.add(
		figure{
			work:     "ten lists at once: growth of RSS",
			unit:     "%",
			mark:     20,
			measured: 100 * (api.After/api.Before - 1),
			note:     fmt.Sprintf("%.0f to %.0f MiB", api.Before, api.After),
		},
	)
	return nil
}

func (b *bench) measureWatches(ctx context.Context) error {
	for _, c := range []struct {
		content       string
		upstream      float64
		p50, p99      float64
		watchers, ups string
	}{
		{"protobuf", 29.5, 105, 515, b.scaled(1000), b.scaled(1000)},
		{"json", 30, 145, 681, b.scaled(1000), b.scaled(1000)},
	} {
		var lines []benchResult
		for range watchRounds {
			l, err := b.kubebench(ctx, "watch", "--watchers", c.watchers, "--updates", c.ups, "--rate", "20",
				"--content-type", c.content)
			if err != nil {
				return err
			}
			lines = append(lines, l)
		}
		cpu := func(l benchResult) float64 { return l.Procs["api"].CPU }
		l := medianBy(lines, cpu)
		b.add(
			figure{
				work:     "1,000 watchers × 1,000 updates at 20/s, " + c.content,
				unit:     "CPU s",
				upstream: c.upstream,
				mark:     c.upstream / 4,
				goal:     c.upstream / 8,
				measured: cpu(l),
				note: fmt.Sprintf("%.3g to %.3g; client %.1f CPU s", cpu(lines[0]), cpu(lines[len(lines)-1]),
					l.ClientCPUs),
			},
		)
		p99 := func(l benchResult) float64 { return l.Latency.P99 }
		l = medianBy(lines, p99)
		b.add(
			figure{work: "its delivery, p99, " + c.content, unit: "ms", upstream: c.p99, mark: c.p50, measured: p99(l),
				note: fmt.Sprintf("%.0f to %.0f; p50 %.1f ms; of the updates themselves p99 %.1f ms", p99(lines[0]),
					p99(lines[len(lines)-1]), l.Latency.P50, l.Extra["write_p99_ms"])},
		)
	}
	l, err := b.kubebench(ctx, "watch", "--watchers", b.scaled(1000), "--updates", b.scaled(1000), "--rate", "0")
	if err != nil {
		return err
	}
	broken, _ := l.Extra["broken_watches"].(float64)
	b.add(
		figure{
			work:     "1,000 watchers, updates unthrottled: broken watches",
			unit:     "",
			upstream: 810,
			mark:     0,
			measured: broken,
			note:     fmt.Sprintf("%v", l.Extra),
		},
	)
	return nil
}

// measureMemory measures resident memory when idle, after load, and with 50,000 pods.
func (b *bench) measureMemory(ctx context.Context) error {
	rss := func() (float64, error) {
		l, err := b.kubebench(ctx, "proc")
		return l.Procs["api"].After, err
	}
	if err := b.awaitIdle(ctx); err != nil {
		return err
	}
	idle, err := rss()
	if err != nil {
		return err
	}
	b.add(figure{work: "RSS, idle", unit: "MiB", upstream: 270, mark: 270.0 / 4, goal: 270.0 / 6, measured: idle})
	for range 4 {
		for _, step := range [][]string{
			{"create", "--n", b.scaled(20000)}, {"get", "--n", b.scaled(40000), "--population", b.scaled(20000)},
			{"update"}, {"delete", "--n", b.scaled(20000)},
		} {
			if _, err := b.kubebench(ctx,
				append(step, "--kind", "pod", "--namespace", "mixed", "--concurrency", "64")...); err != nil {
				return err
			}
		}
	}
	if err := b.awaitIdle(ctx); err != nil {
		return err
	}
	emptied, err := rss()
	if err != nil {
		return err
	}
	b.add(
		figure{
			work:     "RSS, after 0.4 million operations, emptied",
			unit:     "MiB",
			upstream: 2797,
			mark:     1.5 * idle,
			measured: emptied,
		},
	)
	if _, err := b.kubebench(ctx, "create", "--kind", "pod", "--namespace", "full", "--n", b.scaled(50000),
		"--concurrency", "64"); err != nil {
		return err
	}
	full, err := rss()
	if err != nil {
		return err
	}
	b.add(figure{work: "RSS, 50,000 pods", unit: "MiB", upstream: 1580, mark: 1580.0 / 4, measured: full})
	return nil
}

// awaitIdle waits for a minute without requests. CPU time and memory measured after it are those of an idle server.
func (b *bench) awaitIdle(ctx context.Context) error {
	select {
	case <-time.After(time.Minute / time.Duration(b.scale)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// measureStarts measures the time from exec to /readyz, and adds the median of its runs.
func (b *bench) measureStarts(ctx context.Context, name string, upstream, mark float64) error {
	l, err := b.kubebench(ctx, append([]string{"startup", "--runs", "5", "--"}, b.API[0].Command()...)...)
	if err != nil {
		return err
	}
	b.add(
		figure{
			work:     "start to /readyz, " + name,
			unit:     "s",
			upstream: upstream,
			mark:     mark,
			measured: l.Latency.P50 / 1000,
			note:     fmt.Sprintf("CPU s of each run: %v", l.Extra["cpu_s"]),
		},
	)
	return nil
}

// measureStorm measures a restart with 2,000 informers.
func (b *bench) measureStorm(ctx context.Context) error {
	before, err := b.Ranges(ctx)
	if err != nil {
		return err
	}
	l, err := b.kubebench(ctx, "storm", "--informers", b.scaled(2000))
	if err != nil {
		return err
	}
	after, err := b.Ranges(ctx)
	if err != nil {
		return err
	}
	b.add(
		figure{
			work:     "restart storm of 2,000 informers: settled",
			unit:     "s",
			mark:     5,
			measured: l.ElapsedS,
			note:     fmt.Sprintf("server %.1f CPU s, client %.1f", l.Procs["api"].CPU, l.ClientCPUs),
		},
	)
	b.add(figure{work: "its range requests to etcd", unit: "", mark: 0, measured: after - before})
	if err := b.restart(ctx); err != nil {
		return err
	}
	if before, err = b.Ranges(ctx); err != nil {
		return err
	}
	if l, err = b.kubebench(ctx, "storm", "--informers", b.scaled(2000), "--initial-events"); err != nil {
		return err
	}
	if after, err = b.Ranges(ctx); err != nil {
		return err
	}
	b.add(
		figure{
			work:     "the same by watches that begin with what there is: settled",
			unit:     "s",
			mark:     5,
			measured: l.ElapsedS,
			note: fmt.Sprintf("server %.1f CPU s, client %.1f; etcd was asked %.0f times how far it is",
				l.Procs["api"].CPU, l.ClientCPUs, after-before),
		},
	)
	return nil
}
