package apiserver

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/net"
)

// Together, warnings may have so many characters; where they have more, each is cut.
const (
	mostWarned  = 4 << 10
	mostOfEach  = 256
	warningCode = 299
)

// warnings are what an answer warns of.
type warnings struct {
	told  []string
	seen  map[string]bool
	size  int  // in characters, as they are sent
	short bool // whether each is cut
}

// warn adds a Warning header to the answer, once for each text. Where there are too many, those that came
// before are cut as well, and what comes after they are still too many is not told.
func (q *request) warn(text string) {
	w := &q.warnings
	if text == "" || w.seen[text] || w.short && w.size >= mostWarned {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.told = append(w.told, text)
	if !w.short && w.size+utf8.RuneCountInString(text) > mostWarned {
		w.short, w.size = true, 0
		q.w.Header().Del("Warning")
		for _, text := range w.told {
			q.addWarning(text)
		}
		return
	}
	q.addWarning(text)
}

func (q *request) addWarning(text string) {
	w := &q.warnings
	n := utf8.RuneCountInString(text)
	if w.short && n > mostOfEach {
		text, n = string([]rune(text)[:mostOfEach]), mostOfEach
	}
	header, err := net.NewWarningHeader(warningCode, "", text)
	if err != nil {
		return // no header can say it
	}
	w.size += n
	q.w.Header().Add("Warning", header)
}

// warnOf warns of what a strict reader would refuse. What YAML says twice comes as one error, a line for each.
func (q *request) warnOf(doubt error) {
	lines, several := strings.CutPrefix(doubt.Error(), "yaml: unmarshal errors:\n")
	if !several {
		q.warn(lines)
		return
	}
	for line := range strings.SplitSeq(lines, "\n") {
		q.warn(strings.TrimSpace(line))
	}
}
