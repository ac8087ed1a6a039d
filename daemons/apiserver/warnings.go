package apiserver

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/net"
)

// maxWarnings is how many characters all warnings of a response may have. If they have more, each is cut to
// maxCutWarning.
const (
	maxWarnings   = 4 << 10
	maxCutWarning = 256
	warningCode   = 299
)

// warnings holds the warnings of a response.
type warnings struct {
	texts []string
	seen  map[string]bool
	size  int  // in characters, as sent
	isCut bool // whether each warning is cut
}

// warn adds a Warning header to the response, once for each text. If the limit is exceeded, earlier warnings are cut as
// well. Once the cut warnings exceed the limit, further ones are dropped.
func (q *request) warn(text string) {
	w := &q.warnings
	if text == "" || w.seen[text] || w.isCut && w.size >= maxWarnings {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.texts = append(w.texts, text)
	if !w.isCut && w.size+utf8.RuneCountInString(text) > maxWarnings {
		w.isCut, w.size = true, 0
		q.w.Header().Del("Warning")
		for _, text := range w.texts {
			q.addWarning(text)
		}
		return
	}
	q.addWarning(text)
}

func (q *request) addWarning(text string) {
	w := &q.warnings
	n := utf8.RuneCountInString(text)
	if w.isCut && n > maxCutWarning {
		text, n = string([]rune(text)[:maxCutWarning]), maxCutWarning
	}
	header, err := net.NewWarningHeader(warningCode, "", text)
	if err != nil {
		return // it cannot be part of a header
	}
	w.size += n
	q.w.Header().Add("Warning", header)
}

// warnStrictError warns of an error of strict decoding. YAML reports several duplicates as one error with a line for
// each.
func (q *request) warnStrictError(doubt error) {
	lines, several := strings.CutPrefix(doubt.Error(), "yaml: unmarshal errors:\n")
	if !several {
		q.warn(lines)
		return
	}
	for line := range strings.SplitSeq(lines, "\n") {
		q.warn(strings.TrimSpace(line))
	}
}
