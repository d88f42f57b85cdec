
// A row that is chosen marks in the drawing what it leads over, by ids. Without characters that XML minds.
(function () {
  var rows = document.querySelectorAll('tr[data-marks]');
  // A page that is made anew by its server marks the same again; from a file there may be no storage.
  function keep(marks) {
    try { sessionStorage.setItem('weft-marks', marks); } catch (error) { return; }
  }
  function kept() {
    try { return sessionStorage.getItem('weft-marks') || ''; } catch (error) { return ''; }
  }
  function choose(row) {
    var on = row.getAttribute('aria-selected') !== 'true';
    document.querySelectorAll('.picked').forEach(function (mark) { mark.classList.remove('picked'); });
    rows.forEach(function (other) { other.setAttribute('aria-selected', String(on ? other === row : false)); });
    var ids = on ? row.dataset.marks.split(' ') : [];
    keep(on ? row.dataset.marks : '');
    ids.forEach(function (id) {
      var mark = document.getElementById(id);
      if (mark) { mark.classList.add('picked'); }
    });
  }
  rows.forEach(function (row) {
    row.tabIndex = 0;
    row.addEventListener('click', function () { choose(row); });
    row.addEventListener('keydown', function (event) { if (event.key === 'Enter') { choose(row); } });
  });
  var before = kept();
  var same = Array.prototype.filter.call(rows, function (row) { return row.dataset.marks === before; });
  if (before) { same.slice(0, 1).forEach(choose); }
})();
