package lazyregexp_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
)

func TestRegexp(t *testing.T) {
	r := lazyregexp.New(`a(\d+)`)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if !r.MatchString("xa12") || r.MatchString("x") {
				t.Error("MatchString is wrong")
			}
		})
	}
	wg.Wait()
	if got := r.FindStringSubmatch("xa12"); !slices.Equal(got, []string{"a12", "12"}) {
		t.Errorf("FindStringSubmatch gives %q", got)
	}
	if got := r.FindAllStringSubmatch("a1 a2", -1); len(got) != 2 {
		t.Errorf("FindAllStringSubmatch gives %q", got)
	}
	if got := r.FindStringSubmatchIndex("xa12"); !slices.Equal(got, []int{1, 4, 2, 4}) {
		t.Errorf("FindStringSubmatchIndex gives %v", got)
	}
	if got := r.FindStringIndex("xa12"); !slices.Equal(got, []int{1, 4}) {
		t.Errorf("FindStringIndex gives %v", got)
	}
	if got := r.ReplaceAllString("a1 a2", "<$1>"); got != "<1> <2>" {
		t.Errorf("ReplaceAllString gives %q", got)
	}
}

func TestInvalid(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an invalid expression didn't panic when it was used")
		}
	}()
	lazyregexp.New("(").MatchString("")
}
