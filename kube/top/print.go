package top

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"clusterctl/hcl/config"
)

// Print writes a table with small plots of the last hour, each in relation to the node's capacity or to its own highest
// value. It escapes control characters.
func Print(w io.Writer, r *Report) error {
	hasNamespace, hasCapacity := false, false
	for _, row := range r.Rows {
		hasNamespace = hasNamespace || row.Namespace != ""
		hasCapacity = hasCapacity || row.CPUCapacity > 0
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if hasNamespace {
		fmt.Fprint(t, "NAMESPACE\t")
	}
	fmt.Fprint(t, "NAME\tCPU\t")
	if hasCapacity {
		fmt.Fprint(t, "CPU%\t")
	}
	fmt.Fprint(t, "LAST HOUR\tMEMORY")
	if hasCapacity {
		fmt.Fprint(t, "\tMEMORY%")
	}
	fmt.Fprintln(t)
	for _, row := range r.Rows {
		if hasNamespace {
			fmt.Fprintf(t, "%s\t", config.EscapeLine(row.Namespace))
		}
		fmt.Fprintf(t, "%s\t%dm\t", config.EscapeLine(row.Name), int64(row.CPU*1000+0.5))
		if hasCapacity {
			fmt.Fprintf(t, "%s\t", percent(row.CPU, row.CPUCapacity))
		}
		fmt.Fprintf(t, "%s\t%dMi", plot(row.CPUHistory, row.CPUCapacity), row.Memory>>20)
		if hasCapacity {
			fmt.Fprintf(t, "\t%s", percent(float64(row.Memory), float64(row.MemoryCapacity)))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, u := range r.Unseen {
		if _, err := fmt.Fprintf(w, "not shown: %s\n", config.EscapeLine(u)); err != nil {
			return err
		}
	}
	return nil
}

func percent(used, of float64) string {
	if of <= 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f%%", used/of*100)
}

// plotWidth is the number of columns of a plot. Each column has the highest value of its minutes.
const plotWidth = 20

// plot returns values as a row of bars, in relation to highest, or to the highest value if that is 0.
func plot(values []*float64, highest float64) string {
	if len(values) == 0 {
		return ""
	}
	columns := make([]float64, plotWidth)
	for i := range columns {
		columns[i] = -1
		for _, v := range values[i*len(values)/plotWidth : (i+1)*len(values)/plotWidth] {
			if v != nil {
				columns[i] = max(columns[i], *v)
			}
		}
	}
	if highest <= 0 {
		for _, v := range columns {
			highest = max(highest, v)
		}
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	var out strings.Builder
	for _, v := range columns {
		switch {
		case v < 0:
			out.WriteRune(' ')
		case highest <= 0:
			out.WriteRune(bars[0])
		default:
			out.WriteRune(bars[min(int(v/highest*float64(len(bars))), len(bars)-1)])
		}
	}
	return out.String()
}
