package apiserver

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/net"
)

// mostWarned is how many characters all warnings of a response may have. If they have more, each is cut to mostOfEach.
const (
	mostWarned  = 4 << 10
	mostOfEach  = 256
	warningCode = 299
)

// warnings holds the warnings of a response.
type warnings struct {
	told  []string
	seen  map[string]bool
	size  int  // in characters, as sent
	short bool // whether each warning is cut
}

// warn adds a Warning header to the response, once for each text. If the limit is exceeded, earlier warnings are cut as
// well. Once the cut warnings exceed the limit, further ones are dropped.
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
		return // it cannot be part of a header
	}
	w.size += n
	q.w.Header().Add("Warning", header)
}

// warnOf warns of an error of strict decoding. YAML reports several duplicates as one error with a line for each.
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
