package request

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

// Warn adds a Warning header to the response, once for each text. If the limit is exceeded, earlier warnings are cut as
// well. Once the cut warnings exceed the limit, further ones are dropped.
func (a *Answer) Warn(text string) {
	w := &a.warnings
	if a.ResponseWriter == nil || text == "" || w.seen[text] || w.isCut && w.size >= maxWarnings {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.texts = append(w.texts, text)
	if !w.isCut && w.size+utf8.RuneCountInString(text) > maxWarnings {
		w.isCut, w.size = true, 0
		a.Header().Del("Warning")
		for _, text := range w.texts {
			a.addWarning(text)
		}
		return
	}
	a.addWarning(text)
}

func (a *Answer) addWarning(text string) {
	w := &a.warnings
	n := utf8.RuneCountInString(text)
	if w.isCut && n > maxCutWarning {
		text, n = string([]rune(text)[:maxCutWarning]), maxCutWarning
	}
	header, err := net.NewWarningHeader(warningCode, "", text)
	if err != nil {
		return // it cannot be part of a header
	}
	w.size += n
	a.Header().Add("Warning", header)
}

// WarnStrictError warns of an error of strict decoding. YAML reports several duplicates as one error with a line for
// each.
func (a *Answer) WarnStrictError(doubt error) {
	lines, several := strings.CutPrefix(doubt.Error(), "yaml: unmarshal errors:\n")
	if !several {
		a.Warn(lines)
		return
	}
	for line := range strings.SplitSeq(lines, "\n") {
		a.Warn(strings.TrimSpace(line))
	}
}
