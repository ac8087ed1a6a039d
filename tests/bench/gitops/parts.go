package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/daemons/config/gitsource"
)

// measureSources measures many sources with few objects each: their first apply, a round without changes, and why.
func (b *bench) measureSources(ctx context.Context) error {
	b.isReduced = b.sources < fullSources
	return b.withCluster(ctx, func(ctx context.Context, c *testCluster) error {
		files := map[string]string{}
		for i := range b.sources {
			name := fmt.Sprintf("app-%04d", i)
			files[name+"/app.yaml"] = applicationOf(name)
		}
		if err := c.repository.commit(ctx, "main", files); err != nil {
			return err
		}
		for i := range b.sources {
			name := fmt.Sprintf("app-%04d", i)
			if err := c.createSource(ctx, name, map[string]any{"branch": "main", "path": name,
				"interval": b.interval.String()}); err != nil {
				return err
			}
		}
		if err := b.measureFirst(ctx, c, b.sources, fmt.Sprintf("%d sources of 10 objects", b.sources), 60,
			300); err != nil {
			return err
		}
		if err := b.measureRound(ctx, c); err != nil {
			return err
		}
		used, err := runMeasured(ctx, c, filepath.Join(b.bin, "clusterctl"), "why", "-n", "app-0000", "service/web",
			"--kubeconfig", c.Kubeconfig())
		if err != nil {
			return err
		}
		b.addMarked("why, for a service of one of them", "ms", used.wall.Seconds()*1000, 300,
			fmt.Sprintf("CPU of the program %.0f ms", used.cpu.Seconds()*1000))
		return nil
	})
}

// applicationOf returns a namespace with nine objects.
func applicationOf(name string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name)
	meta := func(object string) string { return fmt.Sprintf("metadata: {name: %s, namespace: %s}\n", object, name) }
	out.WriteString("---\napiVersion: v1\nkind: ServiceAccount\n" + meta("web"))
	out.WriteString("---\napiVersion: v1\nkind: Service\n" + meta("web") +
		"spec:\n  selector: {app: web}\n  ports: [{name: http, port: 80, targetPort: 8080}]\n")
	out.WriteString("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n" + meta("web") +
		"rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get, list, watch]}]\n")
	out.WriteString("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n" + meta("web") +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: web}\n" +
		"subjects: [{kind: ServiceAccount, name: web, namespace: " + name + "}]\n")
	for i := range 5 {
		fmt.Fprintf(&out, "---\napiVersion: v1\nkind: ConfigMap\n%sdata: {file: %q}\n",
			meta(fmt.Sprintf("config-%d", i)), strings.Repeat("setting = value\n", 20))
	}
	return out.String()
}

// measureFirst starts the controller and measures until n sources are ready. A mark of 0 means none.
func (b *bench) measureFirst(ctx context.Context, c *testCluster, n int, what string, markSeconds,
	markMemory float64) error {
	before, err := c.countWrites(ctx)
	if err != nil {
		return err
	}
	api, err := cpuSeconds(c.API[0])
	if err != nil {
		return err
	}
	start := time.Now()
	if err := c.controller.Start(ctx); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, n); err != nil {
		return err
	}
	took := time.Since(start)
	cpu, err := cpuSeconds(c.controller)
	if err != nil {
		return err
	}
	apiNow, err := cpuSeconds(c.API[0])
	if err != nil {
		return err
	}
	now, err := c.countWrites(ctx)
	if err != nil {
		return err
	}
	memory, err := peakMemory(c.controller)
	if err != nil {
		return err
	}
	written := now.since(before)
	b.record(figure{work: what + ", first apply", unit: "s", value: took.Seconds(), mark: markSeconds,
		hasMark: markSeconds > 0})
	b.add(what+", first apply: controller", "CPU s", cpu, fmt.Sprintf("API server %.1f", apiNow-api))
	b.record(figure{work: what + ", first apply: controller", unit: "MiB", value: memory, mark: markMemory,
		hasMark: markMemory > 0})
	b.add(what+", first apply", "writes", written.objects, written.note())
	return nil
}

// measureRound measures a round in which nothing has changed.
func (b *bench) measureRound(ctx context.Context, c *testCluster) error {
	done := c.reconciled(ctx, "")
	cpu, written, err := c.costOf(ctx, func() error {
		return poll(ctx, scrapeInterval, "all sources are reconciled again", func(ctx context.Context) (bool, error) {
			return c.reconciled(ctx, "") >= done+float64(b.sources), nil
		})
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("a round of %d sources, nothing changed", b.sources)
	b.addMarked(what+": controller", "CPU s", cpu, 2, "")
	b.addMarked(what, "writes", written.objects+written.sources+written.events, 0, written.note())
	return nil
}

// Names of the part large.
const (
	largeNamespace = "large"
	largeSource    = "large"
	hookToken      = "4f1d8c1b2a90"
)

// measureLarge measures one source with many objects: its first apply, one changed object, and a preview.
func (b *bench) measureLarge(ctx context.Context) error {
	b.isReduced = b.objects < fullObjects
	return b.withCluster(ctx, func(ctx context.Context, c *testCluster) error {
		if err := c.repository.commit(ctx, "main", map[string]string{"large/objects.yaml": manyObjects(b.objects,
			nil)}); err != nil {
			return err
		}
		secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": "hook"}, "stringData": map[string]any{"token": hookToken}}}
		if _, err := c.dynamic.Resource(secrets).Namespace(gitsource.Namespace).Create(ctx, secret,
			metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := c.createSource(ctx, largeSource, map[string]any{"branch": "main", "path": "large", "interval": "1h",
			"receiver": map[string]any{"type": gitsource.ReceiverGeneric, "secret": "hook"}}); err != nil {
			return err
		}
		if err := b.measureFirst(ctx, c, 1, fmt.Sprintf("one source of %d objects", b.objects), 0, 0); err != nil {
			return err
		}
		if err := b.measurePush(ctx, c); err != nil {
			return err
		}
		return b.measureDiff(ctx, c)
	})
}

// manyObjects returns a file with a namespace and n-1 ConfigMaps, some of which have another value.
func manyObjects(n int, changed map[int]bool) string {
	var out strings.Builder
	out.WriteString("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + largeNamespace + "}\n")
	for i := range n - 1 {
		value := "one"
		if changed[i] {
			value = "two"
		}
		fmt.Fprintf(&out, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: %s}\n"+
			"data: {value: %s}\n", i, largeNamespace, value)
	}
	return out.String()
}

// measurePush measures from a webhook until the changed object is applied.
func (b *bench) measurePush(ctx context.Context, c *testCluster) error {
	changed := b.objects / 2
	if err := c.repository.commit(ctx, "main", map[string]string{"large/objects.yaml": manyObjects(b.objects,
		map[int]bool{changed: true})}); err != nil {
		return err
	}
	var took time.Duration
	cpu, written, err := c.costOf(ctx, func() error {
		start := time.Now()
		if err := c.sendHook(ctx, largeSource); err != nil {
			return err
		}
		if err := c.awaitChange(ctx, fmt.Sprintf("c%d", changed)); err != nil {
			return err
		}
		took = time.Since(start)
		return poll(ctx, scrapeInterval, "the round ends", func(ctx context.Context) (bool, error) {
			return c.reconciled(ctx, `outcome="ready"`) >= 2, nil
		})
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("one of %d objects changed, push hook to applied", b.objects)
	b.addMarked(what, "s", took.Seconds(), 1, "")
	b.add(what+": controller, whole round", "CPU s", cpu, "")
	b.addMarked(what, "writes", written.objects, 1, written.note())
	return nil
}

// awaitChange waits until a ConfigMap has the value of the changed file.
func (c *testCluster) awaitChange(ctx context.Context, name string) error {
	return poll(ctx, 20*time.Millisecond, "the change is applied", func(ctx context.Context) (bool, error) {
		o, err := c.dynamic.Resource(configMaps).Namespace(largeNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		value, _, err := unstructured.NestedString(o.Object, "data", "value")
		return value == "two", err
	})
}

// sendHook sends a signed webhook.
func (c *testCluster) sendHook(ctx context.Context, source string) error {
	body := []byte(`{"ref":"refs/heads/main"}`)
	sum := hmac.New(sha256.New, []byte(hookToken))
	_, _ = sum.Write(body) // never fails
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.hooks+"/hooks/"+gitsource.Namespace+
		"/"+source, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("X-Signature", "sha256="+hex.EncodeToString(sum.Sum(nil)))
	answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the receiver answers a webhook with %s", answer.Status)
	}
	return nil
}

// measureDiff measures a preview of a branch in which one object of a hundred differs.
func (b *bench) measureDiff(ctx context.Context, c *testCluster) error {
	changed := map[int]bool{}
	for i := 0; i < b.objects; i += 100 {
		changed[i] = true
	}
	if err := c.repository.commit(ctx, "next", map[string]string{"large/objects.yaml": manyObjects(b.objects,
		changed)}); err != nil {
		return err
	}
	used, err := runMeasured(ctx, c, filepath.Join(b.bin, "gitops-controller"), "diff", "--kubeconfig", c.Kubeconfig(),
		"--revision", "next", gitsource.Namespace+"/"+largeSource)
	if err != nil {
		return err
	}
	if n := strings.Count(used.out, `"action": "change"`); n < len(changed)-1 {
		return fmt.Errorf("the preview shows %d changes of %d", n, len(changed))
	}
	what := fmt.Sprintf("diff of %d objects from Git", b.objects)
	b.addMarked(what, "CPU s", used.cpu.Seconds(), 3, fmt.Sprintf("%.1f s by the clock", used.wall.Seconds()))
	b.addMarked(what, "MiB", used.memory, 400, "")
	return nil
}

// usage is what a program that has ended needed.
type usage struct {
	wall, cpu time.Duration
	memory    float64 // MiB
	out       string
}

// unhealthyCode is the exit code of why for an object that is not as it should be.
const unhealthyCode = 2

// runMeasured runs a program until it ends.
func runMeasured(ctx context.Context, c *testCluster, program string, args ...string) (usage, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = c.Dir
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	start := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || args[0] != "why" || exit.ExitCode() != unhealthyCode) {
		return usage{}, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, messages.Bytes())
	}
	u := usage{wall: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		out: out.String()}
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = float64(used.Maxrss) / 1024
	}
	return u, nil
}

// measureHelm measures the first apply of many releases of a chart.
func (b *bench) measureHelm(ctx context.Context) error {
	b.isReduced = b.releases < fullReleases
	return b.withCluster(ctx, func(ctx context.Context, c *testCluster) error {
		if err := c.repository.commit(ctx, "main", chartFiles); err != nil {
			return err
		}
		for i := range b.releases {
			name := fmt.Sprintf("release-%04d", i)
			if err := c.createSource(ctx, name, map[string]any{"branch": "main", "path": "web", "interval": "1h",
				"helm": map[string]any{"release": name, "values": map[string]any{"number": int64(i)}}}); err != nil {
				return err
			}
		}
		return b.measureFirst(ctx, c, b.releases, fmt.Sprintf("%d Helm releases", b.releases), 120, 0)
	})
}

// chartFiles is a chart with five objects.
var chartFiles = map[string]string{
	"web/Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\nappVersion: \"1.0\"\n",
	"web/values.yaml": "number: 0\nport: 80\nsettings: {color: blue, size: large}\n",
	"web/templates/_helpers.tpl": `{{- define "web.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- define "web.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
`,
	"web/templates/config.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "web.name" . }}
  labels: {{- include "web.labels" . | nindent 4 }}
data:
  number: {{ .Values.number | quote }}
  {{- range $key, $value := .Values.settings }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
`,
	"web/templates/account.yaml": `apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "web.name" . }}
  labels: {{- include "web.labels" . | nindent 4 }}
`,
	"web/templates/service.yaml": `apiVersion: v1
kind: Service
metadata:
  name: {{ include "web.name" . }}
  labels: {{- include "web.labels" . | nindent 4 }}
spec:
  selector: {app.kubernetes.io/instance: {{ .Release.Name }}}
  ports: [{name: http, port: {{ .Values.port }}}]
`,
	"web/templates/role.yaml": `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "web.name" . }}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [{{ include "web.name" . }}], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "web.name" . }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "web.name" . }}}
subjects: [{kind: ServiceAccount, name: {{ include "web.name" . }}}]
`,
}
