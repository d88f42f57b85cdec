
// A row that is chosen marks in the drawing what it leads over, by ids. Without characters that XML minds.
(function () {
  var rows = document.querySelectorAll('tr[data-marks]');
  function choose(row) {
    var on = row.getAttribute('aria-selected') !== 'true';
    document.querySelectorAll('.picked').forEach(function (mark) { mark.classList.remove('picked'); });
    rows.forEach(function (other) { other.setAttribute('aria-selected', String(on ? other === row : false)); });
    var ids = on ? row.dataset.marks.split(' ') : [];
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
})();
