package load_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/hcl/load"
)

// Every file and folder of testdata/corpus is a configuration. NAME.golden beside it has the diagnostics and, if the
// configuration is valid, the declared cluster.
// Proves P01.
func TestCorpus(t *testing.T) {
	entries, err := os.ReadDir("testdata/corpus")
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{}
	cases := 0
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, ".golden") || strings.HasPrefix(name, ".") {
			continue
		}
		cases++
		golden := filepath.Join("testdata/corpus",
			strings.TrimSuffix(strings.TrimSuffix(name, ".json"), ".hcl")+".golden")
		wanted[filepath.Base(golden)] = true
		t.Run(strings.TrimSuffix(filepath.Base(golden), ".golden"), func(t *testing.T) {
			got := describeConfiguration(t, filepath.Join("testdata/corpus", name))
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".golden") && !wanted[e.Name()] {
			t.Errorf("%s is of no configuration", e.Name())
		}
	}
	t.Log(cases, "configurations")
}

// describeConfiguration returns the diagnostics of a configuration and what it declares, without the folder in paths.
func describeConfiguration(t *testing.T, path string) string {
	t.Helper()
	var out strings.Builder
	c, diags := load.Load(load.Options{Path: path})
	if err := c.Print(&out, diags, 0, false); err != nil {
		t.Fatal(err)
	}
	if !diags.HasErrors() {
		describeCluster(&out, c.Cluster)
	}
	return strings.NewReplacer(path+"/", "", filepath.Dir(path)+"/", "", path, "DIR", filepath.Dir(path), "DIR").
		Replace(out.String())
}

// describeCluster writes the parts of a cluster in the order of their declaration, one for each line.
func describeCluster(out *strings.Builder, c *config.Cluster) {
	line := func(address string, v any, after []string) {
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		var plain any
		if json.Unmarshal(text, &plain) == nil {
			text, _ = json.Marshal(withoutEmpty(plain))
		}
		fmt.Fprintf(out, "%s %s", address, text)
		if len(after) > 0 {
			fmt.Fprintf(out, " after %s", strings.Join(after, ", "))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "cluster %s endpoint=%q pods=%v services=%v members=%d\n", c.Name, c.Endpoint, c.PodCIDRs,
		c.ServiceCIDRs, c.Etcd.Members)
	if len(c.Deferred) > 0 {
		fmt.Fprintf(out, "deferred %s\n", strings.Join(c.Deferred, ", "))
	}
	for _, m := range c.Machines {
		address := m.Address
		m.Address, m.Source = "", config.Source{}
		line(address, m, nil)
	}
	for _, i := range c.Images {
		line("image "+i.Name, i.Reference, nil)
	}
	for _, w := range c.Workloads {
		address, after := w.Address, w.DependsOn
		w.Address, w.Source, w.DependsOn = "", config.Source{}, nil
		line(address, w, after)
	}
	for _, o := range c.Objects {
		line(o.Address, o.Content, o.DependsOn)
		if o.Ignored.All || len(o.Ignored.Fields) > 0 {
			line("  ignores", o.Ignored, nil)
		}
	}
	for _, o := range c.Outputs {
		if o.Sensitive {
			o.Value = config.HiddenText
		}
		line("output "+o.Name, o.Value, nil)
	}
}

// withoutEmpty removes empty fields.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			e = withoutEmpty(e)
			if v[k] = e; e == nil || e == "" || e == false || e == 0.0 {
				delete(v, k)
			} else if m, ok := e.(map[string]any); ok && len(m) == 0 {
				delete(v, k)
			}
		}
	case []any:
		for i, e := range v {
			v[i] = withoutEmpty(e)
		}
	}
	return v
}
